// The vendor's own SDK against the emulator. It prints one line for each thing that it saw, and exits with 1 at the first that
// is not as it should be. The SDK has no setting for the address, so its fetch is given one that goes to the emulator.
const assert = require('node:assert')
const { Writable } = require('node:stream')
const { Sandbox, Snapshot, APIError, StreamError } = require('@vercel/sandbox')

const seen = what => console.log('ok ' + what)
const base = process.env.VERCEL_SANDBOX_API_URL
const redirect = (url, init) => fetch(String(url).replace('https://vercel.com/api', base), init)
const account = { token: process.env.VERCEL_TOKEN, teamId: process.env.VERCEL_TEAM_ID, projectId: process.env.VERCEL_PROJECT_ID, fetch: redirect }
const status = n => error => error instanceof APIError && error.response.status === n
const collect = async stream => {
  const parts = []
  for await (const part of stream) parts.push(Buffer.from(part))
  return Buffer.concat(parts)
}

async function main() {
  await assert.rejects(Sandbox.get({ ...account, name: 'x', token: 'wrong' }), status(403))
  await assert.rejects(Sandbox.get({ ...account, name: 'nobody' }), status(404))
  seen('wrong credentials, an unknown sandbox')

  const box = await Sandbox.create({ ...account, name: 'box', resources: { vcpus: 2 }, timeout: 600000, env: { GREETING: 'hi' }, tags: { a: '1' }, networkPolicy: 'allow-all' })
  assert.deepEqual([box.name, box.status, box.persistent, box.vcpus, box.memory], ['box', 'running', true, 2, 4096])
  await assert.rejects(Sandbox.create({ ...account, name: 'box' }), status(409))
  assert.equal((await Sandbox.get({ ...account, name: 'box' })).name, 'box')
  const names = async q => (await Sandbox.list({ ...account, ...q })).sandboxes.map(s => s.name)
  assert.deepEqual([await names({ tags: { a: '1' } }), await names({ tags: { a: '2' } })], [['box'], []])
  seen('create, a taken name, get, list by tag')

  const oidc = await Sandbox.get({ name: 'box', fetch: redirect })
  assert.equal(oidc.name, 'box')
  seen('an OIDC token')

  let log = ''
  const stdout = new Writable({ write(chunk, encoding, done) { log += chunk; done() } })
  let r = await box.runCommand({ cmd: 'bash', args: ['-c', 'echo $GREETING; echo err >&2; exit 3'], stdout })
  assert.equal(log, 'hi\n')
  assert.deepEqual([r.exitCode, await r.stdout(), await r.stderr()], [3, 'hi\n', 'err\n'])
  r = await box.runCommand('bash', ['-c', 'printf "x%.0s" {1..70000}; printf "\\303"; sleep 0.2; printf "\\251"; cat | wc -c'])
  assert.equal(await r.stdout(), 'x'.repeat(70000) + 'é0\n')
  r = await box.runCommand('bash', ['-c', 'echo ${#1}', 'x', 'y'.repeat(120000)])
  assert.equal(await r.stdout(), '120000\n')
  r = await box.runCommand('sh', ['-c', 'nosuchcommand'])
  assert.equal(r.exitCode, 127)
  r = await box.runCommand({ cmd: 'sleep', args: ['60'], timeoutMs: 300 })
  assert.equal(r.exitCode, 137)
  seen('run: streams, an empty stdin, whole characters, a big argument, exit codes, a timeout')

  const c = await box.runCommand({ cmd: 'bash', args: ['-c', 'trap "echo got; exit 9" TERM; echo ready; while :; do sleep 0.05; done'], detached: true })
  let text = ''
  for await (const line of c.logs()) {
    if (line.stream === 'stdout') text += line.data
    if (line.data.includes('ready')) await c.kill('SIGTERM')
  }
  assert.equal((await c.wait()).exitCode, 9)
  assert.equal(text, 'ready\ngot\n')
  for (const [signal, code] of [['SIGINT', 130], ['SIGTERM', 143], ['SIGKILL', 137]]) {
    const s = await box.runCommand({ cmd: 'sleep', args: ['60'], detached: true })
    await s.kill(signal)
    assert.equal((await s.wait()).exitCode, code)
    assert.equal((await box.getCommand(s.cmdId)).exitCode, code)
  }
  seen('detached: logs, a trap, kill by signals, wait, get')

  const data = Buffer.from(Array.from({ length: 70000 }, (_, i) => i % 256))
  await box.writeFiles([{ path: 'one', content: data, mode: 0o750 }, { path: '/tmp/d/an empty one', content: Buffer.alloc(0) }])
  assert.deepEqual(await collect(await box.readFile({ path: 'one' })), data)
  assert.equal(await box.readFile({ path: 'none' }), null)
  r = await box.runCommand('stat', ['-c', '%a %s', '/vercel/sandbox/one', '/tmp/d/an empty one'])
  assert.match(await r.stdout(), /^750 70000\n\d+ 0\n$/)
  await box.mkDir('dir')
  await assert.rejects(box.mkDir('dir'), status(400))
  seen('files')

  const { url, token } = await box.openInteractive()
  const pty = new WebSocket(url + '?token=' + encodeURIComponent(token))
  pty.binaryType = 'arraybuffer'
  let screen = '', exit
  const closed = new Promise(done => (pty.onclose = done))
  pty.onmessage = m => typeof m.data === 'string' ? (exit = JSON.parse(m.data)) : (screen += Buffer.from(m.data).toString())
  await new Promise((done, fail) => { pty.onopen = done; pty.onerror = fail })
  pty.send(JSON.stringify({ type: 'start', command: 'bash', args: ['--norc'], env: ['TERM=xterm', 'FOO=bar'], cwd: '/tmp', cols: 100, rows: 30 }))
  const until = async re => {
    for (let i = 0; i < 3000 && !re.test(screen); i++) await new Promise(done => setTimeout(done, 10))
    assert.match(screen, re)
  }
  pty.send(Buffer.from('echo "<$FOO>" $PWD; stty size\n'))
  await until(/<bar> \/tmp\s+30 100/)
  pty.send(JSON.stringify({ type: 'resize', cols: 120, rows: 40 }))
  pty.send(Buffer.from('stty size\n'))
  await until(/40 120/)
  pty.send(Buffer.from('exit 4\n'))
  await closed
  assert.deepEqual(exit, { type: 'exit', code: 4 })
  seen('a terminal: environment, directory, size, exit code')

  const before = box.currentSession().timeout
  await box.extendTimeout(60000)
  assert.equal(box.currentSession().timeout, before + 60000)
  await box.update({ networkPolicy: 'deny-all' }).catch(() => box.updateNetworkPolicy('deny-all'))
  seen('extend the timeout, change the network policy')

  const running = box.runCommand('bash', ['-c', 'echo kept > /root/kept; sleep 60'])
  running.catch(() => {})
  for (let i = 0; i < 3000 && (await box.readFile({ path: '/root/kept' })) === null; i++) await new Promise(done => setTimeout(done, 10))
  await box.stop()
  await assert.rejects(running, StreamError)
  r = await box.runCommand('bash', ['-c', 'cat /root/kept; pgrep -c sleep'])
  assert.equal(await r.stdout(), 'kept\n1\n') // the machine's own first process
  seen('stop ends processes, and the next command resumes with the files')

  const snapshot = await box.snapshot()
  assert.equal(snapshot.status, 'created')
  const copy = await Sandbox.create({ ...account, name: 'copy', source: { type: 'snapshot', snapshotId: snapshot.snapshotId } })
  assert.equal((await collect(await copy.readFile({ path: '/root/kept' }))).toString(), 'kept\n')
  assert((await Snapshot.list({ ...account, name: 'box' })).snapshots.some(s => s.id === snapshot.snapshotId))
  await (await Snapshot.get({ ...account, snapshotId: snapshot.snapshotId })).delete()
  await assert.rejects(Sandbox.create({ ...account, name: 'late', source: { type: 'snapshot', snapshotId: snapshot.snapshotId } }), status(410))
  seen('snapshots: create, list, start from one, delete')

  await copy.delete()
  await box.delete()
  await assert.rejects(Sandbox.get({ ...account, name: 'box' }), status(404))
  seen('delete')
}

main().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})

// The vendor's own SDK against the emulator. It prints one line for each thing that it saw, and exits with 1 at the first that
// is not as it should be.
const assert = require('node:assert')
const { Daytona, DaytonaNotFoundError } = require('@daytonaio/sdk')

const seen = what => console.log('ok ' + what)
const text = bytes => Buffer.from(bytes).toString()

async function main() {
  const daytona = new Daytona({ apiKey: process.env.DAYTONA_API_KEY, apiUrl: process.env.DAYTONA_API_URL })

  await assert.rejects(new Daytona({ apiKey: 'wrong', apiUrl: process.env.DAYTONA_API_URL }).get('x'), /nvalid credentials/)
  seen('wrong credentials')
  await assert.rejects(daytona.get('nobody'), DaytonaNotFoundError)
  seen('an unknown sandbox')

  const box = await daytona.create({ image: 'debian:12', name: 'box', labels: { a: '1' }, envVars: { GREETING: 'hi' }, resources: { cpu: 1, memory: 1, disk: 3 }, autoStopInterval: 5 })
  assert.equal(box.state, 'started')
  await assert.rejects(daytona.create({ image: 'debian:12', name: 'box' }), /already exists/)
  seen('create, and a name that is taken')
  assert.equal((await daytona.get('box')).id, box.id)
  let listed = 0
  for await (const one of daytona.list({ labels: { a: '1' } })) listed += one.id === box.id
  for await (const one of daytona.list({ labels: { a: '2' } })) listed += 10
  assert.equal(listed, 1)
  seen('get by name, list by label')

  let r = await box.process.executeCommand('echo $GREETING; echo err >&2; exit 3')
  assert.deepEqual([r.exitCode, r.result], [3, 'hi\nerr\n'])
  r = await box.process.executeCommand('echo ' + 'x'.repeat(3 << 20) + ' | wc -c')
  assert.equal(r.result.trim(), String((3 << 20) + 1))
  await assert.rejects(box.process.executeCommand('sleep 30', undefined, undefined, 1), /timeout/i)
  seen('execute: exit code, output, a long command, a timeout')

  const data = Buffer.from(Array.from({ length: 70000 }, (_, i) => i % 256))
  await box.fs.uploadFiles([{ source: data, destination: '/tmp/d/one' }, { source: Buffer.alloc(0), destination: '/tmp/d/an empty one' }])
  assert.deepEqual(await box.fs.downloadFile('/tmp/d/one'), data)
  assert.deepEqual((await box.fs.listFiles('/tmp/d')).map(f => f.name).sort(), ['an empty one', 'one'])
  await assert.rejects(box.fs.downloadFile('/tmp/d/none'))
  seen('files')

  await box.process.createSession('s')
  r = await box.process.executeSessionCommand('s', { command: 'cd /tmp; export X=1; echo out; echo err >&2' })
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'out\n', 'err\n'])
  r = await box.process.executeSessionCommand('s', { command: 'pwd; echo $X' })
  assert.equal(r.stdout, '/tmp\n1\n')
  const command = await box.process.executeSessionCommand('s', { command: 'read x; echo "got $x"; (exit 7)', runAsync: true })
  await box.process.sendSessionCommandInput('s', command.cmdId, 'input')
  let log = ''
  await box.process.getSessionCommandLogs('s', command.cmdId, chunk => (log += chunk), () => {})
  assert.match(log, /got input\n/)
  assert.equal((await box.process.getSessionCommand('s', command.cmdId)).exitCode, 7)
  await box.process.executeSessionCommand('s', { command: 'sleep 1234', runAsync: true })
  await box.process.deleteSession('s')
  r = await box.process.executeCommand('pgrep -f "sleep [1]234"; echo $?')
  assert.equal(r.result.trim(), '1')
  seen('sessions: state, streams, input, logs, and delete as a kill')

  let screen = ''
  const pty = await box.process.createPty({ id: 'p', cols: 100, rows: 30, envs: { FOO: 'bar' }, onData: d => (screen += text(d)) })
  const until = async re => {
    for (let i = 0; i < 3000 && !re.test(screen); i++) await new Promise(done => setTimeout(done, 10))
    assert.match(screen, re)
  }
  await pty.sendInput('echo "<$FOO>"; stty size\n')
  await until(/<bar>\s+30 100/)
  await pty.resize(120, 40)
  await pty.sendInput('stty size\n')
  await until(/40 120/)
  await pty.sendInput('sleep 100 || echo "ended $?"\n')
  await new Promise(done => setTimeout(done, 300))
  await pty.sendInput('\x03')
  await pty.sendInput('echo "af""ter"\n')
  await until(/after/)
  await pty.sendInput('exit 5\n')
  assert.equal((await pty.wait()).exitCode, 5)
  const other = await box.process.createPty({ id: 'q', onData: () => {} })
  assert.equal((await box.process.listPtySessions()).length, 1)
  await other.kill()
  assert.equal((await other.wait()).exitCode, 137)
  seen('terminals: environment, size, Ctrl-C, exit code, kill')

  await box.process.executeCommand('echo kept > /root/kept; sleep 1000 >/dev/null 2>&1 &')
  await box.stop()
  assert.equal(box.state, 'stopped')
  await assert.rejects(box.process.executeCommand('true'), /not started/i)
  await box.start()
  r = await box.process.executeCommand('cat /root/kept; pgrep -x sleep | wc -l')
  assert.equal(r.result, 'kept\n1\n') // the machine's own first process
  seen('stop ends processes, start brings files back')
  await box.delete()
  await assert.rejects(daytona.get('box'), DaytonaNotFoundError)
  seen('delete')
}

main().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})

// The protocol's own SDK for JavaScript against `elsewhere mcp`: over standard input and output of a child that it starts itself,
// or over HTTP where ELSEWHERE_URL is set. It prints one line for each thing that it saw, and exits with 1 at the first that is not
// as it should be.
const assert = require('node:assert')
const fs = require('node:fs')
const path = require('node:path')
const { Client } = require('@modelcontextprotocol/sdk/client/index.js')
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js')
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js')

const { ELSEWHERE, ELSEWHERE_URL, ELSEWHERE_TOKEN, HOME } = process.env
const patience = { timeout: 120_000 }
const seen = what => console.log('ok ' + what)

async function connect() {
  const transport = ELSEWHERE_URL
    ? new StreamableHTTPClientTransport(new URL(ELSEWHERE_URL), { requestInit: { headers: { Authorization: 'Bearer ' + ELSEWHERE_TOKEN } } })
    : new StdioClientTransport({ command: ELSEWHERE, args: ['mcp', '-b', 'local'], env: { HOME, PATH: process.env.PATH } })
  const client = new Client({ name: 'check', version: '1' })
  await client.connect(transport)
  client.tool = async (name, args, options) => (await client.callTool({ name, arguments: args }, undefined, { ...patience, ...options })).structuredContent
  client.run = async (command, options) => {
    const r = await client.tool('terminal', { command }, options)
    assert.equal(r.exit_code, 0, JSON.stringify(r))
    return r.output
  }
  return client
}

// until waits for what has to become true, for as long as a slow machine may need.
async function until(what, is) {
  for (const end = Date.now() + 90_000; Date.now() < end; await new Promise(done => setTimeout(done, 20))) if (await is()) return
  assert.fail(what + ' did not come')
}

const size = file => { try { return fs.statSync(file).size } catch { return 0 } }

async function tools(client) {
  assert.equal(client.getServerVersion().name, 'elsewhere')
  assert.match(client.getInstructions(), /do not run where you run/)
  const { tools } = await client.listTools()
  assert.deepEqual(tools.map(t => t.name).sort(), ['process', 'read_file', 'terminal', 'write_file'])
  const terminal = tools.find(t => t.name === 'terminal')
  assert.deepEqual(terminal.inputSchema.required, ['command'])
  assert.equal(terminal.inputSchema.properties.backend, undefined)
  assert.equal(terminal.annotations.destructiveHint, true)
  seen('tools')
}

async function state(client) {
  await client.run('export A=1; f() { echo "f $A"; }; mkdir -p sub; cd sub')
  assert.equal(await client.run('f; pwd'), `f 1\n${HOME}/sub\n`)
  const r = await client.tool('terminal', { command: 'echo out; echo err >&2; exit 3' })
  assert.deepEqual([r.output, r.exit_code, r.cause, r.backend], ['out\nerr\n', 3, 'exited', 'local'])
  await client.run('cd')
  seen('state carries over')
}

async function files(client) {
  const file = path.join(HOME, 'dir', 'a file')
  await client.tool('write_file', { path: file, content: 'one\ntwo ü\nthree\n' })
  assert.equal(fs.readFileSync(file, 'utf8'), 'one\ntwo ü\nthree\n')
  const r = await client.callTool({ name: 'read_file', arguments: { path: file, offset: 2, limit: 1 } }, undefined, patience)
  assert.match(r.content[0].text, /two ü/)
  assert.doesNotMatch(r.content[0].text, /one|three/)
  const bad = await client.callTool({ name: 'read_file', arguments: { path: file + '.none' } }, undefined, patience)
  assert.equal(bad.isError, true)
  seen('files')
}

async function job(client) {
  const heart = path.join(HOME, 'job-heart')
  const started = await client.tool('terminal', { background: true, command: `echo up; while :; do printf . >>'${heart}'; sleep 0.05; done & read -r l; echo "got $l"; wait` })
  const id = started.job.job_id
  assert.equal(started.job.state, 'running')
  let log = ''
  const has = text => async () => (log += (await client.tool('process', { action: 'poll', job_id: id, timeout: 5 })).output).includes(text)
  await until('the output of a job', has('up\n'))
  await client.tool('process', { action: 'submit', job_id: id, data: 'input' })
  await until('the input of a job', has('got input\n'))
  await until('the heart of a job', () => size(heart) > 2)
  const killed = await client.tool('process', { action: 'kill', job_id: id })
  assert.equal(killed.job.state, 'killed')
  await stops(heart)
  const list = await client.tool('process', { action: 'list' })
  assert.equal(list.jobs.find(j => j.job_id === id).state, 'killed')
  seen('a job: start, poll, submit, kill')
}

// stops waits until a file that grew 20 times a second no longer does.
async function stops(heart) {
  for (let last = -1, tries = 0; last !== size(heart); tries++) {
    assert.ok(tries < 60, 'it still beats')
    last = size(heart)
    await new Promise(done => setTimeout(done, 1000))
  }
}

async function progress(client) {
  let told = ''
  const running = client.run(`echo first; until [[ -e '${HOME}/go' ]]; do sleep 0.05; done; echo last`, { onprogress: p => (told += p.message ?? '') })
  await until('a progress notification', () => told.includes('first'))
  fs.writeFileSync(path.join(HOME, 'go'), '')
  assert.equal(await running, 'first\nlast\n')
  seen('progress')
}

async function cancel(client) {
  const heart = path.join(HOME, 'heart')
  await client.run('export KEPT=1')
  const abort = new AbortController()
  const running = client.run(`setsid bash -c 'while :; do printf . >>"${heart}"; sleep 0.05; done' & wait`, { signal: abort.signal })
  const ended = assert.rejects(running)
  const other = client.tool('terminal', { session: 'other', command: `until [[ -e '${HOME}/over' ]]; do sleep 0.05; done; echo whole` })
  await until('the heart', () => size(heart) > 2)
  abort.abort('the user pressed Escape')
  await ended
  await stops(heart)
  fs.writeFileSync(path.join(HOME, 'over'), '')
  assert.equal((await other).output, 'whole\n')
  assert.equal(await client.run('echo $KEPT'), '1\n')
  seen('cancel ends its own command alone')
}

async function apart(client) {
  const long = await client.tool('terminal', { command: 'export MINE=1; seq 1 20000' })
  assert.ok(long.truncated)
  const whole = await client.readResource({ uri: long.output_uri }, patience)
  assert.match(whole.contents[0].text, /^1\n2\n3\n/)
  const other = await connect()
  assert.equal(await other.run('echo "[$MINE]"'), '[]\n')
  await assert.rejects(other.readResource({ uri: long.output_uri }, patience))
  const r = await other.callTool({ name: 'process', arguments: { action: 'log', job_id: long.output_id } }, undefined, patience)
  assert.equal(r.isError, true)
  assert.doesNotMatch(JSON.stringify(r), /19999/)
  await other.close()
  seen('another client sees neither state nor output')
}

async function main() {
  const client = await connect()
  for (const check of [tools, state, files, job, progress, cancel, apart]) await check(client)
  await client.transport.terminateSession?.()
  await client.close()
  seen('end')
}

main().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})

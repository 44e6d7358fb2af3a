import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { execPath } from 'node:process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { requirePart } from '../../support/parts/require-part.ts'
import { freshName, makeOrganisation, startTestServer, type TestServer } from '../../support/test-server.ts'
import { fullTierTest } from '../../support/tier.ts'

const root = join(import.meta.dirname, '../../..')
const samples = join(root, 'docs/examples/clients')
const require = createRequire(import.meta.url)

/** Imports each module of both clients in Python. */
const importAll = `
import importlib, pkgutil, taproot_client, taproot_v1
for package in (taproot_client, taproot_v1):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):
        importlib.import_module(module.name)
`

let server: TestServer
let folder: string
beforeAll(async () => {
  server = await startTestServer()
  folder = await mkdtemp(join(tmpdir(), 'taproot-clients-'))
})
afterAll(async () => {
  await server.stop()
  await rm(folder, { recursive: true, force: true })
})

/** Runs a program in a folder. Returns its output. Throws its output if it fails. */
async function run(cwd: string, [program = '', ...args]: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string> {
  const running = promisify(execFile)(program, args, { cwd, env: { ...process.env, ...env }, maxBuffer: 64 * 1024 * 1024 })
  const { stdout } = await running.catch(({ message, stdout }: { message: string; stdout: string }) => expect.fail(`${message}\n${stdout}`))
  return stdout
}

/** Returns a new folder for the client of a language, with the walkthrough, and with both documents as the server sends them. */
async function clientFolder(language: string, files: readonly string[]): Promise<string> {
  const own = join(folder, language)
  await mkdir(own)
  for (const file of files) await copyFile(join(samples, language, file), join(own, file))
  for (const name of ['openapi', 'openapi-v1']) {
    const response = await fetch(`${server.config.baseUrl}/${name}.json`)
    await writeFile(join(own, `${name}.json`), await response.bytes())
  }
  return own
}

/** Runs the walkthrough in a new organisation, whose repo `hello` has had three images under one tag. Checks what it prints. */
async function checkWalkthrough(cwd: string, command: readonly string[]): Promise<void> {
  const name = freshName('demo')
  const { owner, token } = await makeOrganisation(server, name)
  const { baseUrl, registry } = server.config
  const { token: push } = await server.running.signIn.tokens.mint({
    identityUid: trustedUid(owner),
    audiences: [registry.host],
    act: { issuer: `${baseUrl}/dev/issuer`, subject: 'test', audience: baseUrl },
    restrictions: {},
  })
  const client = new OciClient(registry.port, push)
  for (let image = 0; image < 3; image += 1) await client.pushImage(`${name}/hello`, 'latest')
  client.close()
  const tokenOf = (subject: string): Promise<string> => server.devIssuer.mintDevToken({ subject, audience: baseUrl })
  const env = { API: baseUrl, ROOT: name, TOKEN: token, CI_TOKEN: await tokenOf('ci'), ANN_TOKEN: await tokenOf('operator') }
  expect((await run(cwd, command, env)).trim().split('\n')).toEqual([
    'groups: 1',
    'created: web, The web team',
    'bound: ci web viewer',
    'access: 3',
    'seen: web',
    'caller: true viewer',
    'denied: 403 7 PERMISSION_DENIED',
    'hidden: 404 5 NOT_FOUND',
    'changed: web, Everything on the web',
    'first: First',
    'second: 409 10 ETAG_MISMATCH',
    'role: CAP_IAM_GROUPS_LIST CAP_REPO_LIST CAP_TAG_CREATE',
    'bindings: ci release',
    'pages: release ci of 2',
    'full: 400 9 FAILED_PRECONDITION',
    'deleted: 200',
    'signed out: 401 16 UNAUTHENTICATED',
    'tags: latest',
    'history: 3',
    'restored: latest true',
    `organisation: ${name}-acme ORG_STATUS_READY`,
  ])
}

test('a client in TypeScript does the walkthrough', async () => {
  const own = await clientFolder('typescript', ['walkthrough.ts'])
  const generator = join(dirname(require.resolve('openapi-typescript/package.json')), 'bin/cli.js')
  const compiler = join(dirname(require.resolve('typescript-native/package.json')), 'bin/tsc')
  await run(own, [execPath, generator, 'openapi.json', '-o', 'taproot.ts'])
  await run(own, [execPath, generator, 'openapi-v1.json', '-o', 'taproot-v1.ts'])
  await symlink(join(root, 'node_modules'), join(own, 'node_modules'))
  await writeFile(join(own, 'package.json'), '{ "type": "module" }')
  await writeFile(join(own, 'tsconfig.json'), JSON.stringify({ extends: join(root, 'tsconfig.json'), include: ['*.ts'] }))
  await run(own, [execPath, compiler, '-p', '.'])
  await checkWalkthrough(own, [execPath, 'walkthrough.ts'])
})

fullTierTest('a client in Python does the walkthrough', async () => {
  const python = requirePart('openapi-python-client')
  const own = await clientFolder('python', ['walkthrough.py'])
  // Its formatters are left out.
  await writeFile(join(own, 'config.yaml'), 'post_hooks: []\n')
  const options = ['--meta=none', '--config=config.yaml', '--fail-on-warning']
  const generate = [python, '-m', 'openapi_python_client', 'generate', ...options]
  await run(own, [...generate, '--path=openapi.json', '--output-path=taproot_client'])
  await run(own, [...generate, '--path=openapi-v1.json', '--output-path=taproot_v1'])
  await run(own, [python, '-W', 'error', '-c', importAll])
  await checkWalkthrough(own, [python, 'walkthrough.py'])
})

fullTierTest('a client in Go does the walkthrough', async () => {
  const generator = requirePart('oapi-codegen')
  const own = await clientFolder('go', ['main.go', 'go.mod', 'go.sum'])
  for (const [document, name] of [
    ['openapi.json', 'taproot'],
    ['openapi-v1.json', 'taprootv1'],
  ] as const) {
    await mkdir(join(own, name))
    await run(own, [generator, '-generate=types,client', `-package=${name}`, '-o', `${name}/client.go`, document])
  }
  // Go keeps what it compiled of the same document.
  await run(own, ['go', 'build', '-trimpath', '-o', '.', './...'])
  await checkWalkthrough(own, [join(own, 'walkthrough')])
})

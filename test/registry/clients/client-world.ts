import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import type { PartName } from '../../../tools/parts.js'
import { trustedUid } from '../../../src/base/uid.ts'
import { makeOrganisation, startTestServer } from '../../support/test-server.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { describeWithPart, requirePart } from '../../support/parts/require-part.ts'

const timeoutMs = 300_000

/** A registry host with one organisation, and a home directory for programs that push and pull there. */
export interface ClientWorld {
  /** Host name and port, for HTTP. */
  readonly host: string
  /** Name of the organisation. */
  readonly organisation: string
  /** A platform token of its owner: the password of the user `_token`. */
  readonly token: string
  /** Home and working directory of the programs. */
  readonly home: string
  /** Runs a program in `home`. Resolves with its standard output without the last line break; rejects with all output if the program fails. */
  run(part: PartName, args: readonly string[], options?: RunOptions): Promise<string>
  /** Like `run`, for a program that may fail. */
  runAnyway(part: PartName, args: readonly string[], options?: RunOptions): Promise<Ending>
  stop(): Promise<void>
}

/** The output of a program; `code` is null if the program was killed. */
export interface Ending {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Options of a run of a program. */
export interface RunOptions {
  readonly stdin?: string
  readonly env?: Readonly<Record<string, string>>
}

/** Settings from docs/registry.md: indexes may name missing manifests, and layers may have external URLs. */
const validation = { manifests: { indexes: { platforms: 'none' }, urls: { allow: ['^https?://'] } } }

/** Starts a server over a folder, or over a distribution registry. */
async function startClientWorld(over: 'folder' | 'distribution'): Promise<ClientWorld> {
  const registry = over === 'distribution' ? await startRegistry({ configuration: { validation } }) : undefined
  const server = await startTestServer({ env: registry === undefined ? {} : { TAPROOT_REGISTRY_UPSTREAM_URL: registry.url } })
  const made = await makeOrganisation(server)
  const act = { issuer: 'https://issuer.test', subject: 'test', audience: server.config.registry.host }
  const mint = { identityUid: trustedUid(made.owner), audiences: [server.config.registry.host], act, restrictions: {} }
  const { token } = await server.running.signIn.tokens.mint(mint)
  const home = await mkdtemp(join(tmpdir(), 'taproot-client-'))
  return {
    host: server.config.registry.host,
    organisation: server.running.engine.cache.tables.get('Group', made.group)?.name ?? '',
    token,
    home,
    async run(part, args, options) {
      const { code, stdout, stderr } = await runProgram(requirePart(part), args, { home, ...options })
      if (code !== 0) throw new Error(`${part} ${args.join(' ')} ended with ${code}\n${stdout}\n${stderr}`)
      return stdout.trimEnd()
    },
    runAnyway: (part, args, options) => runProgram(requirePart(part), args, { home, ...options }),
    async stop() {
      await server.stop()
      await registry?.stop()
      await rm(home, { recursive: true, force: true, maxRetries: 3 })
    },
  }
}

async function runProgram(program: string, args: readonly string[], options: RunOptions & { readonly home: string }): Promise<Ending> {
  const { home, stdin = '', env = {} } = options
  // All programs keep log-ins and settings in this folder.
  const own = { HOME: home, DOCKER_CONFIG: join(home, '.docker'), REGISTRY_AUTH_FILE: join(home, 'auth.json'), XDG_RUNTIME_DIR: home, TMPDIR: home }
  const child = spawn(program, args, {
    cwd: home,
    env: { PATH: process.env['PATH'], ...own, ...env },
    stdio: 'pipe',
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk) => (stdout += String(chunk)))
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  // It may end without reading.
  child.stdin.on('error', () => undefined)
  child.stdin.end(stdin)
  const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
  return { code, stdout, stderr }
}

/** One `describe` over a folder and one over a distribution registry; the latter needs one, as `describeWithPart` says. */
export function describeOverBoth(title: string, body: (start: () => Promise<ClientWorld>) => void): void {
  describe(`${title} over a folder`, () => body(() => startClientWorld('folder')))
  describeWithPart('registry', `${title} over a distribution registry`, () => body(() => startClientWorld('distribution')))
}

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { requirePart } from './require-part.ts'

const timeoutMs = 60_000

/** How crane is run. */
export interface CraneOptions {
  /** Beside the environment of this process. `DOCKER_CONFIG` keeps log-ins between runs; without it each run has a configuration of its own. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** What it reads, e.g. a password. */
  readonly stdin?: string
}

/** What crane said; `code` is undefined where it did not end within a minute and was killed. */
export interface CraneResult {
  readonly stdout: string
  readonly stderr: string
  readonly code: number | undefined
}

/**
 * Runs a real crane. Addresses of the loopback network, as in `127.0.0.1:5000/a/b`, it reaches over HTTP by itself; `--insecure` among the arguments also takes
 * certificates that nobody signed.
 */
export async function crane(args: readonly string[], options: CraneOptions = {}): Promise<CraneResult> {
  const program = requirePart('crane')
  const configuration = await mkdtemp(join(tmpdir(), 'taproot-crane-'))
  try {
    const env = { ...process.env, DOCKER_CONFIG: configuration, ...options.env }
    const child = spawn(program, args, {
      env,
      stdio: 'pipe',
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      ...(options.cwd !== undefined && { cwd: options.cwd }),
    })
    let [stdout, stderr] = ['', '']
    child.stdout.on('data', (chunk) => (stdout += String(chunk)))
    child.stderr.on('data', (chunk) => (stderr += String(chunk)))
    // It may end without reading.
    child.stdin.on('error', () => undefined)
    child.stdin.end(options.stdin ?? '')
    const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
    return { stdout, stderr, code: code ?? undefined }
  } finally {
    await rm(configuration, { recursive: true, force: true })
  }
}

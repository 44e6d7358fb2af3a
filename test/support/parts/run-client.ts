import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PartName } from '../../../tools/parts.js'
import { requirePart } from './require-part.ts'

/** Options of a client program. */
export interface ClientOptions {
  /** In addition to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Its standard input. */
  readonly stdin?: string
}

/** The output of a client; `code` is undefined after a time-out, when the program is killed. */
export interface ClientResult {
  readonly stdout: string
  readonly stderr: string
  readonly code: number | undefined
}

/** Runs a real client with a temporary home, from which `own` derives its environment. Does not throw if the client fails. */
export async function runClient(
  name: PartName,
  args: readonly string[],
  { env, cwd, stdin, timeoutMs, own }: ClientOptions & { readonly timeoutMs: number; readonly own: (home: string) => Readonly<Record<string, string>> },
): Promise<ClientResult> {
  const program = requirePart(name)
  const home = await mkdtemp(join(tmpdir(), `taproot-${name}-`))
  try {
    const child = spawn(program, args, {
      env: { ...process.env, ...own(home), ...env },
      stdio: 'pipe',
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      ...(cwd !== undefined && { cwd }),
    })
    let [stdout, stderr] = ['', '']
    child.stdout.on('data', (chunk) => (stdout += String(chunk)))
    child.stderr.on('data', (chunk) => (stderr += String(chunk)))
    // It may end without reading.
    child.stdin.on('error', () => undefined)
    child.stdin.end(stdin ?? '')
    const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
    return { stdout, stderr, code: code ?? undefined }
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}

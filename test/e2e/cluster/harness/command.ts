import { spawn, type SpawnOptions } from 'node:child_process'
import { once } from 'node:events'

/** Runs a program to its end and returns its output. Throws its error output if it fails. */
export async function run(program: string, args: readonly string[], options: Pick<SpawnOptions, 'cwd' | 'env'> = {}): Promise<string> {
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk) => (stdout += String(chunk)))
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${code ?? 'a signal'}:\n${stdout}${stderr}`)
  return stdout
}

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { requirePart } from './require-part.ts'

/** How a client of a cluster is run. */
export interface KubeClientOptions {
  readonly kubeconfigFile: string
  /** What it reads: a manifest with `apply -f -`. */
  readonly stdin?: string
  readonly cwd?: string
  /** Beside the environment of this process. */
  readonly env?: Readonly<Record<string, string>>
  /** 5 minutes by default; then it is killed. */
  readonly timeoutMs?: number
}

/** What it said; `code` is undefined where it did not end in time and was killed. */
export interface KubeClientResult {
  readonly stdout: string
  readonly stderr: string
  readonly code: number | undefined
}

/** Runs a real kubectl or helm, with caches and configuration of its own; never throws for what it answers. */
export async function runKubeClient(name: 'kubectl' | 'helm', args: readonly string[], options: KubeClientOptions): Promise<KubeClientResult> {
  const program = requirePart(name)
  const home = await mkdtemp(join(tmpdir(), `taproot-${name}-`))
  try {
    const own = {
      KUBECONFIG: options.kubeconfigFile,
      HOME: home,
      KUBECACHEDIR: join(home, 'cache'),
      HELM_CACHE_HOME: home,
      HELM_CONFIG_HOME: home,
      HELM_DATA_HOME: home,
    }
    const child = spawn(program, args, {
      env: { ...process.env, ...own, ...options.env },
      stdio: 'pipe',
      timeout: options.timeoutMs ?? 300_000,
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
    await rm(home, { recursive: true, force: true })
  }
}

/** As `runKubeClient`, and returns what it printed; throws with what it complained about where it fails. */
export async function mustRunKubeClient(name: 'kubectl' | 'helm', args: readonly string[], options: KubeClientOptions): Promise<string> {
  const { stdout, stderr, code } = await runKubeClient(name, args, options)
  if (code !== 0) throw new Error(`${name} ${args.join(' ')} ended with ${code ?? 'a time-out'}:\n${stdout}${stderr}`)
  return stdout
}

import { join } from 'node:path'
import { runClient, type ClientOptions, type ClientResult } from '../run-client.ts'

/** Options of a client of a cluster. */
export interface KubeClientOptions extends ClientOptions {
  readonly kubeconfigFile: string
  /** 5 minutes by default. */
  readonly timeoutMs?: number
}

/** The output of a client of a cluster. */
export type KubeClientResult = ClientResult

/** Runs a real kubectl or helm with separate caches and configuration. Does not throw if the program fails. */
export function runKubeClient(
  name: 'kubectl' | 'helm',
  args: readonly string[],
  { kubeconfigFile, timeoutMs = 300_000, ...options }: KubeClientOptions,
): Promise<KubeClientResult> {
  const own = (home: string): Record<string, string> => ({
    KUBECONFIG: kubeconfigFile,
    HOME: home,
    KUBECACHEDIR: join(home, 'cache'),
    HELM_CACHE_HOME: home,
    HELM_CONFIG_HOME: home,
    HELM_DATA_HOME: home,
  })
  return runClient(name, args, { ...options, timeoutMs, own })
}

/** Like `runKubeClient`, but returns the output, and throws with the error output if the program fails. */
export async function mustRunKubeClient(name: 'kubectl' | 'helm', args: readonly string[], options: KubeClientOptions): Promise<string> {
  const { stdout, stderr, code } = await runKubeClient(name, args, options)
  if (code !== 0) throw new Error(`${name} ${args.join(' ')} ended with ${code ?? 'a time-out'}:\n${stdout}${stderr}`)
  return stdout
}

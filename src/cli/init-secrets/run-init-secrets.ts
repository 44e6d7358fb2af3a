import { createKubeClient } from '../../kubernetes/client/kube-client.ts'
import type { KubeEndpoint } from '../../kubernetes/client/kube-endpoint.ts'
import { podEndpoint } from '../../server/cluster-endpoint.ts'
import { UsageError } from '../exit-codes.ts'
import { systemClock, systemRandom } from '../../server/runtime.ts'
import { initSecrets } from './init-secrets.ts'
import type { SecretAction } from './secret-plan.ts'
import { parseWanted } from './wanted.ts'

/** Options of the command. */
export interface InitSecretsArguments {
  /** The wanted Secrets as JSON, in the form that `parseWanted` reads. */
  readonly wanted: string
  /** Path of a kubeconfig. If absent, uses the service account of the pod. */
  readonly kubeconfig?: string
}

/** How long to retry, in milliseconds. New permissions may take a moment to reach all API servers. */
const timeoutMs = 30_000

const words = { keep: 'kept', make: 'made', renew: 'renewed' } as const satisfies Record<SecretAction, string>

/** Runs `initSecrets` with a real API server, and prints the action for each Secret. Throws UsageError, KubeError. */
export async function runInitSecrets(options: InitSecretsArguments): Promise<void> {
  const wanted = parseWanted(options.wanted)
  const kube = createKubeClient({ endpoint: endpointOf(options.kubeconfig), userAgent: 'taproot-init-secrets', random: systemRandom })
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stop.abort(new Error('stopped')))
  const report = (name: string, action: SecretAction): void => void process.stdout.write(`${words[action]} ${name}\n`)
  try {
    await initSecrets(wanted, { kube, clock: systemClock, random: systemRandom, timeoutMs, report }, stop.signal)
  } finally {
    await kube.close()
  }
}

function endpointOf(kubeconfig: string | undefined): KubeEndpoint {
  if (kubeconfig !== undefined) return { from: 'kubeconfig', file: kubeconfig, environment: process.env }
  const endpoint = podEndpoint(process.env)
  if (endpoint === undefined) throw new UsageError('this is not a Kubernetes pod (KUBERNETES_SERVICE_HOST is not set): set --kubeconfig')
  return endpoint
}

import { dirname, delimiter, join } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import type { Cluster } from './cluster.ts'
import { run } from './command.ts'

const root = join(import.meta.dirname, '..', '..', '..', '..')

/** Runs commands like a person at a terminal in the checkout, with access to the cluster. Resolves to their output; rejects with it if one fails. */
export function shell({ kubeconfigFile }: Cluster, commands: string): Promise<string> {
  const programs = (['kubectl', 'helm', 'etcdctl'] as const).map((part) => dirname(requirePart(part)))
  const path = [...programs, process.env['PATH'] ?? ''].join(delimiter)
  return run('bash', ['-euo', 'pipefail', '-c', commands], {
    cwd: root,
    env: { ...process.env, PATH: path, KUBECONFIG: kubeconfigFile, HOME: dirname(kubeconfigFile) },
  })
}

import { Command } from 'commander'
import { exitAfterParsing } from '../exit-codes.ts'
import type { InitSecretsArguments } from './run-init-secrets.ts'

/** Creates the command `taproot init-secrets`, which the Helm chart runs at each installation and upgrade. */
export function initSecretsCommand(): Command {
  return new Command('init-secrets')
    .description('create missing Kubernetes Secrets and renew certificates that expire soon; the Helm chart runs it')
    .exitOverride(exitAfterParsing)
    .requiredOption('--wanted <json>', 'namespace, labels and the list of secrets, as the chart writes it')
    .option('--kubeconfig <file>', 'kubeconfig file; default: the service account of the pod')
    .action(async (options: InitSecretsArguments) => {
      // Loaded only for this command, since the Kubernetes client is a large module.
      const { runInitSecrets } = await import('./run-init-secrets.ts')
      await runInitSecrets(options)
    })
}

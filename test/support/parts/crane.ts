import { runClient, type ClientOptions, type ClientResult } from './run-client.ts'

/** Options of crane. `DOCKER_CONFIG` in `env` keeps log-ins between runs. */
export type CraneOptions = ClientOptions

/** The output of crane, which is killed after a minute. */
export type CraneResult = ClientResult

/**
 * Runs a real crane. It reaches addresses of the loopback network, as in `127.0.0.1:5000/a/b`, over HTTP by itself.
 * `--insecure` among the arguments also accepts untrusted certificates.
 */
export function crane(args: readonly string[], options: CraneOptions = {}): Promise<CraneResult> {
  return runClient('crane', args, { ...options, timeoutMs: 60_000, own: (home) => ({ DOCKER_CONFIG: home }) })
}

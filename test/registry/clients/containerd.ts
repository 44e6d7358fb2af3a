import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { vi } from 'vitest'
import { requirePart, skipFor } from '../../support/parts/require-part.ts'
import { runClient, type ClientResult } from '../../support/parts/run-client.ts'

/** Runs ctr, the client of containerd. */
export type Ctr = (args: readonly string[]) => Promise<ClientResult>

/** Flags of ctr for a registry without TLS, with an access token. */
export function ctrFlags(token: string): readonly string[] {
  return ['--plain-http', '--user', `_token:${token}`]
}

/** Starts a containerd in the folder, which ends when `work` does. Needs root: skips the test otherwise. */
export async function withContainerd(home: string, work: (ctr: Ctr) => Promise<void>): Promise<void> {
  if (process.getuid?.() !== 0) skipFor('containerd takes root')
  const address = join(home, 'containerd.sock')
  // A snapshotter for all file systems; no Kubernetes plugins.
  const configuration = { version: 3, root: join(home, 'containerd'), state: join(home, 'containerd-state'), disabled_plugins: ['io.containerd.grpc.v1.cri'] }
  const settings = Object.entries(configuration).map(([key, value]) => `${key} = ${JSON.stringify(value)}`)
  await writeFile(join(home, 'containerd.toml'), [...settings, '[grpc]', `address = "${address}"`, ''].join('\n'))
  const daemon = spawn(requirePart('containerd'), ['--config', join(home, 'containerd.toml')], { stdio: 'ignore' })
  const ctr: Ctr = (args) => runClient('ctr', ['--address', address, ...args], { timeoutMs: 300_000, own: (own) => ({ HOME: own }) })
  try {
    const isReady = async (): Promise<void> => {
      const { code, stderr } = await ctr(['version'])
      if (code !== 0) throw new Error(stderr)
    }
    await vi.waitFor(isReady, { timeout: 120_000, interval: 100 })
    await work(ctr)
  } finally {
    daemon.kill('SIGKILL')
    if (daemon.exitCode === null && daemon.signalCode === null) await once(daemon, 'exit')
  }
}

/** Pulls an image. ctr itself does so, with the same resolver as the kubelet's containerd. */
export function ctrPull(ctr: Ctr, { image, token }: { readonly image: string; readonly token: string }): Promise<ClientResult> {
  return ctr(['images', 'pull', '--local', '--snapshotter', 'native', ...ctrFlags(token), image])
}

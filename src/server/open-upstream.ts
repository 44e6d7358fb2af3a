import type { Log } from '../base/log.ts'
import type { Clock, Random } from '../base/runtime.ts'
import type { Tracing } from '../base/tracing.ts'
import { createDiskUpstream, createHttpUpstream, type Upstream } from '../registry/index.ts'
import type { Config, UpstreamConfig } from '../config/config.ts'
import type { ReloadedFiles } from '../config/files/reloaded-files.ts'
import { SettingError, withSetting } from '../config/setting-error.ts'

/** Dependencies for opening an upstream. */
export interface UpstreamParts {
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly files: ReloadedFiles
  readonly tracing?: Tracing | undefined
}

/**
 * Opens the configured upstream; undefined if there is none. Does not connect to a registry, since it may start later. Rejects with
 * SettingError if the folder cannot be created, or if a certificate or password cannot be read.
 */
export async function openUpstream(config: Config, parts: UpstreamParts): Promise<Upstream | undefined> {
  const { clock, random, log } = parts
  const { upstream } = config.registry
  if (upstream?.directory !== undefined) return await openDisk(upstream.directory, { clock, random })
  if (upstream?.url === undefined) return undefined
  const opened = openRegistry(config, { ...upstream, url: upstream.url }, parts)
  log.info('upstream', { url: new URL(upstream.url).origin })
  return opened
}

async function openDisk(directory: string, { clock, random }: { clock: Clock; random: Random }): Promise<Upstream> {
  try {
    return await createDiskUpstream({ directory, clock, random })
  } catch (error) {
    throw new SettingError('registry.upstream.directory', directory, error)
  }
}

function openRegistry(config: Config, upstream: UpstreamConfig & { readonly url: string }, { clock, files, tracing }: UpstreamParts): Upstream {
  const { url, prefix, username, passwordFile, caFile, redirects } = upstream
  const password =
    passwordFile === undefined ? undefined : files.read({ text: { setting: 'registry.upstream.passwordFile', path: passwordFile, kind: 'text' } })
  const ca = caFile === undefined ? undefined : files.read({ pem: { setting: 'registry.upstream.caFile', path: caFile, kind: 'authorities' } })
  const account = username === undefined || password === undefined ? {} : { username, password: () => password.current.text.toString('utf8').trimEnd() }
  // A client that connected over TLS is only redirected to https URLs.
  const passed = redirects === 'pass' ? { passRedirects: config.registry.scheme === 'https' ? ('https' as const) : ('any' as const) } : {}
  const options = {
    url,
    ...(prefix === undefined ? {} : { prefix }),
    ...account,
    ...(ca === undefined ? {} : { ca: () => ca.current.pem.toString('utf8') }),
    ...passed,
    clock,
    tracing,
  }
  return withSetting('registry.upstream.url', url, () => createHttpUpstream(options))
}

import { readFileSync } from 'node:fs'
import type { Log } from '../core/log.ts'
import type { Clock, Random } from '../core/runtime.ts'
import { createDiskUpstream } from '../registry/upstream/disk/disk-upstream.ts'
import { createHttpUpstream } from '../registry/upstream/http/http-upstream.ts'
import type { Upstream } from '../registry/upstream/upstream.ts'
import type { Config, UpstreamConfig } from './config/config.ts'
import { SettingError, withSetting } from './setting-error.ts'

/**
 * The configured upstream; undefined where none is. A registry is not asked for anything yet: it may come up later. Rejects with SettingError where the folder can't be
 * made, or a certificate or password can't be read.
 */
export async function openUpstream(config: Config, { clock, random, log }: { clock: Clock; random: Random; log: Log }): Promise<Upstream | undefined> {
  const { upstream } = config.registry
  if (upstream?.directory !== undefined) return await openDisk(upstream.directory, { clock, random })
  if (upstream?.url === undefined) return undefined
  const opened = openRegistry(config, { ...upstream, url: upstream.url }, clock)
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

function openRegistry(config: Config, upstream: UpstreamConfig & { readonly url: string }, clock: Clock): Upstream {
  const { url, prefix, username, passwordFile, caFile, redirects } = upstream
  const read = (key: string, path: string): string => withSetting(`registry.upstream.${key}`, path, () => readFileSync(path, 'utf8'))
  const account = username === undefined || passwordFile === undefined ? {} : { username, password: read('passwordFile', passwordFile).trimEnd() }
  // Who came over TLS is sent nowhere in the clear.
  const passed = redirects === 'pass' ? { passRedirects: config.registry.scheme === 'https' ? ('https' as const) : ('any' as const) } : {}
  const options = {
    url,
    ...(prefix === undefined ? {} : { prefix }),
    ...account,
    ...(caFile === undefined ? {} : { ca: read('caFile', caFile) }),
    ...passed,
    clock,
  }
  return withSetting('registry.upstream.url', url, () => createHttpUpstream(options))
}

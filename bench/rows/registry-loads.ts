import type { Environment } from '../environment.ts'
import type { HttpLoad, PushLoad } from '../load/load.ts'
import { compare, type Comparison } from '../measure.ts'
import { gets } from './loads.ts'
import type { RegistryWorld } from './registry-world.ts'

const manifestType = 'application/vnd.oci.image.manifest.v1+json'

/** Compares a load through the registry host with the same load on the upstream. */
export async function against(
  environment: Environment,
  world: RegistryWorld,
  loads: { ours: HttpLoad | PushLoad; theirs: HttpLoad | PushLoad },
): Promise<Comparison> {
  const upstream = await environment.distribution()
  return environment.withGenerators([loads.ours, loads.theirs], ([ours, theirs]) =>
    compare(
      { name: 'Taproot', generator: ours, pids: world.hostPids },
      { name: 'distribution', generator: theirs, pids: [upstream.pid] },
      environment.scale.rounds,
    ),
  )
}

/** Compares GETs of a path in the repo: through the registry host, and on the upstream. */
export async function pulls(
  environment: Environment,
  world: RegistryWorld,
  asked: { connections: number; what: string },
): Promise<{ ours: HttpLoad; theirs: HttpLoad }> {
  const { baseRecords: records } = environment.scale
  const [host, upstream] = [await environment.registryHost(records), await environment.distribution()]
  const common = { kind: 'http', tls: false, connections: asked.connections } as const
  const headers = { accept: manifestType }
  const authorization = `Bearer ${await world.registryToken('pull')}`
  return {
    ours: { ...common, port: host.port, headers: { ...headers, authorization }, requests: gets([`/v2/${world.path}/${asked.what}`]) },
    theirs: { ...common, port: upstream.port, headers, requests: gets([`/v2/${world.repo}/${asked.what}`]) },
  }
}

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

/** Returns a load of GETs of manifests or blobs at the registry host. */
async function hostLoad(
  environment: Environment,
  { path, connections, authorization }: { path: string; connections: number; authorization: string },
): Promise<HttpLoad> {
  const { port } = await environment.registryHost(environment.scale.baseRecords)
  return { kind: 'http', tls: false, port, connections, headers: { accept: manifestType, authorization }, requests: gets([path]) }
}

/** Returns loads of GETs of a manifest by tag: of an image that pull policies allow, and of one without any. */
export async function guardedPulls(environment: Environment, world: RegistryWorld): Promise<readonly [HttpLoad, HttpLoad]> {
  const load = async (path: string): Promise<HttpLoad> => {
    const authorization = `Bearer ${await world.registryToken('pull', path)}`
    return hostLoad(environment, { path: `/v2/${path}/manifests/v1`, connections: environment.scale.connections, authorization })
  }
  return [await load(world.guardedPath), await load(world.path)]
}

/** Compares GETs of a path in the repo: through the registry host, and on the upstream. */
export async function pulls(
  environment: Environment,
  world: RegistryWorld,
  asked: { connections: number; what: string },
): Promise<{ ours: HttpLoad; theirs: HttpLoad }> {
  const upstream = await environment.distribution()
  const { connections, what } = asked
  const authorization = `Bearer ${await world.registryToken('pull')}`
  const requests = gets([`/v2/${world.repo}/${what}`])
  return {
    ours: await hostLoad(environment, { path: `/v2/${world.path}/${what}`, connections, authorization }),
    theirs: { kind: 'http', tls: false, connections, port: upstream.port, headers: { accept: manifestType }, requests },
  }
}

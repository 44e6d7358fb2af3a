import type { Server } from '@grpc/grpc-js'
import { HealthImplementation } from 'grpc-health-check'
import type { MethodRow } from '../../base/schema/method.ts'
import { serviceAliases } from '../aliases.ts'

/** Serves grpc.health.v1 on `server` for the empty name and each service; NOT_SERVING until `setReady(true)`. */
export function createHealth(
  server: Server,
  options: { readonly methods: readonly MethodRow[]; readonly namespaces?: readonly string[] },
): { setReady(ready: boolean): void } {
  const services = new Set(options.methods.map((row) => row.service))
  const names = ['', ...[...services].flatMap((service) => [service, ...serviceAliases(service, options.namespaces ?? [])])]
  const health = new HealthImplementation(Object.fromEntries(names.map((name) => [name, 'NOT_SERVING'] as const)))
  health.addToServer(server)
  return {
    setReady(ready) {
      for (const name of names) health.setStatus(name, ready ? 'SERVING' : 'NOT_SERVING')
    },
  }
}

import { lookup as systemLookup, promises } from 'node:dns'
import type { LookupFunction } from 'node:net'

/** How long a name server may take, and how often it is asked. */
const resolverOptions = { timeout: 2_000, tries: 2 }

/** Names of the machine and of its own network. Files and search lists of the system know them; their name servers are the operator's. */
const localName = /^[^.]+$|\.(?:localhost|svc|local|internal)\.?$/i

/**
 * Returns a lookup for names that tenants choose. The system's lookup holds one of four threads that the whole process shares, for as long as a tenant's name
 * server is silent. This one holds none. It ignores the hosts file, except for local names.
 */
export function createResolverLookup(resolver: Pick<promises.Resolver, 'resolve4' | 'resolve6'> = new promises.Resolver(resolverOptions)): LookupFunction {
  return (hostname, options, callback) => {
    if (localName.test(hostname)) {
      systemLookup(hostname, options, callback)
      return
    }
    void Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]).then(([four, six]) => {
      const addresses = [
        ...(four.status === 'fulfilled' ? four.value.map((address) => ({ address, family: 4 })) : []),
        ...(six.status === 'fulfilled' ? six.value.map((address) => ({ address, family: 6 })) : []),
      ]
      const [first] = addresses
      const reason: unknown = four.status === 'rejected' ? four.reason : undefined
      if (first === undefined) callback(reason instanceof Error ? reason : new Error(`${hostname} has no address`), '', 0)
      else if (options.all === true) callback(null, addresses)
      else callback(null, first.address, first.family)
    })
  }
}

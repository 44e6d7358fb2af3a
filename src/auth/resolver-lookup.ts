import { lookup as systemLookup, promises } from 'node:dns'
import type { LookupFunction } from 'node:net'

/** Timeout of a DNS query in milliseconds, and the number of attempts. */
const resolverOptions = { timeout: 2_000, tries: 2 }

/**
 * Matches names of this machine and of its own network. The system resolves them with its hosts file and search lists, and the operator controls their DNS
 * servers.
 */
const localName = /^[^.]+$|\.(?:localhost|svc|local|internal)\.?$/i

/**
 * Returns a DNS lookup function for names that tenants choose. Node's default lookup occupies one of the process's four threads while a tenant's DNS server is
 * silent. This one occupies none. It ignores the hosts file, except for local names.
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

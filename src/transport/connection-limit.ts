import type { Socket } from 'node:net'
import type { Networks } from '../base/client-address.ts'
import { addressKey } from './rate-limit.ts'

/** Limits of the connections to a port. */
export interface ConnectionLimits {
  /** Maximum number of open connections. Additional ones are closed immediately. */
  readonly max: number
  /** Maximum number of open connections from one address (IPv6: one /64). Trusted proxies are exempt. */
  readonly perAddress: number
}

/**
 * Returns a function that counts the open connections of each address. It returns true if a connection may stay. Otherwise it closes the connection and
 * returns false.
 */
export function createConnectionLimit({ perAddress }: ConnectionLimits, trustedProxies: Networks): (socket: Socket) => boolean {
  const open = new Map<string, number>()
  return (socket) => {
    const { remoteAddress } = socket
    // A connection that the client has already closed has no address.
    if (remoteAddress === undefined || trustedProxies.has(remoteAddress)) return true
    const key = addressKey(remoteAddress)
    const count = open.get(key) ?? 0
    if (count >= perAddress) {
      socket.destroy()
      return false
    }
    open.set(key, count + 1)
    socket.once('close', () => {
      const left = (open.get(key) ?? 1) - 1
      if (left > 0) open.set(key, left)
      else open.delete(key)
    })
    return true
  }
}

import type { Socket } from 'node:net'
import type { Networks } from '../base/client-address.ts'
import { addressKey } from './rate-limit.ts'

/** Limits of a port's connections. */
export interface ConnectionLimits {
  /** Maximum at once; further ones are closed at once. */
  readonly max: number
  /** Maximum for one address (IPv6: one /64) that is not a trusted proxy. */
  readonly perAddress: number
}

/** Counts the connections of each address. The returned function closes an excess connection and returns false. */
export function createConnectionLimit({ perAddress }: ConnectionLimits, trustedProxies: Networks): (socket: Socket) => boolean {
  const open = new Map<string, number>()
  return (socket) => {
    const { remoteAddress } = socket
    // A connection that is already gone has no address.
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

import type { Socket } from 'node:net'
import type { Networks } from '../base/client-address.ts'
import { addressKey } from './rate-limit.ts'

/** How many connections a port takes. */
export interface ConnectionLimits {
  /** At once; more are closed as they come. */
  readonly max: number
  /** Of one address (IPv6: of one /64), where it is no trusted proxy's. */
  readonly perAddress: number
}

/** Counts the connections of each address. False where the connection is one too many: then it has been closed. */
export function createConnectionLimit({ perAddress }: ConnectionLimits, trustedProxies: Networks): (socket: Socket) => boolean {
  const open = new Map<string, number>()
  return (socket) => {
    const { remoteAddress } = socket
    // One that is gone already has none.
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

import { DomainError } from '../../base/errors.ts'
import type { Presented } from '../gate.ts'

/** The principal or address whose requests are counted together. */
export type LimitKey = { readonly principal: string } | { readonly address: string }

/** Rate limits for each principal and each address. `write`, `refusal` and `read` throw DomainError code 8 if the limit is exceeded. */
export interface RegistryLimits {
  /** Counts a write request of a principal. */
  write(uid: string): void
  /** Counts a request from an address whose credential was rejected. */
  refusal(address: string): void
  /** Starts a read, or a token request. Call the returned function once when the response has ended, with the number of bytes sent. */
  read(key: LimitKey): (sentBytes: number) => void
  /** Resolves when the key's next read may start; returns undefined if it may start now. */
  turn(key: LimitKey): Promise<void> | undefined
}

/** The limit under which a request counts. */
export type RequestSort = 'read' | 'write'

/** Counts requests by principal and by address. */
export interface RequestCounts {
  /** Counts a request with a valid credential. A read waits until it may start. Throws DomainError code 8. */
  ofPrincipal(input: Presented, principal: string, sort: RequestSort): Promise<void> | undefined
  /** Resolves when a read without a credential may start; returns undefined if it may start now. */
  turn(input: Presented): Promise<void> | undefined
  /** Counts a request whose credential was rejected. Throws DomainError code 8. */
  refused(input: Presented): void
  /** Runs `work` and counts the request for its address: every read, and writes whose credential was rejected. */
  byAddress<T>(input: Presented, sort: RequestSort, work: () => Promise<T>): Promise<T>
}

/**
 * Creates RequestCounts. Counts nothing if `limits` is undefined. Requests below `/v2/` without a credential are not counted as rejected,
 * because every pull begins with one.
 */
export function createCounts(limits: RegistryLimits | undefined): RequestCounts {
  function countRead(input: Presented, key: LimitKey): void {
    const end = limits?.read(key)
    if (end === undefined) return
    if (input.onceAnswered === undefined) end(0)
    else input.onceAnswered(end)
  }
  const refused: RequestCounts['refused'] = ({ remoteAddress }) => {
    if (remoteAddress !== undefined) limits?.refusal(remoteAddress)
  }
  return {
    refused,
    ofPrincipal(input, principal, sort) {
      if (sort === 'read') {
        countRead(input, { principal })
        return limits?.turn({ principal })
      }
      limits?.write(principal)
      return undefined
    },
    turn: ({ remoteAddress }) => (remoteAddress === undefined ? undefined : limits?.turn({ address: remoteAddress })),
    async byAddress(input, sort, work) {
      if (sort === 'read' && input.remoteAddress !== undefined) countRead(input, { address: input.remoteAddress })
      try {
        return await work()
      } catch (error) {
        if (error instanceof DomainError && (error.code === 16 || error.code === 7)) refused(input)
        throw error
      }
    },
  }
}

import { DomainError } from '../../base/errors.ts'
import type { Presented } from '../gate.ts'

/** Whose requests are counted together. */
export type LimitKey = { readonly principal: string } | { readonly address: string }

/** How much one principal, or one address, may ask. `write`, `refusal` and `read` throw DomainError code 8 where it is too much. */
export interface RegistryLimits {
  /** Counts a request that changes something. */
  write(uid: string): void
  /** Counts a request that was refused for its credential. */
  refusal(address: string): void
  /** Begins a read, or a request for a token. The result is called once when it is answered, with the bytes that were sent. */
  read(key: LimitKey): (sentBytes: number) => void
  /** Resolves when it is the turn of the key's next read; undefined where that is now. */
  turn(key: LimitKey): Promise<void> | undefined
}

/** What a request does. */
export type RequestSort = 'read' | 'write'

/** Counts requests by address and by principal. */
export interface RequestCounts {
  /** Counts the request of a principal whose credential is good. A read waits for its turn. Throws DomainError code 8. */
  ofPrincipal(input: Presented, principal: string, sort: RequestSort): Promise<void> | undefined
  /** Resolves when it is the turn of a read without a credential; undefined where that is now. */
  turn(input: Presented): Promise<void> | undefined
  /** Counts a request that was refused for its credential. Throws DomainError code 8. */
  refused(input: Presented): void
  /** Runs `work` and counts the request by its address: each read, and of the others those that are refused for their credential. */
  byAddress<T>(input: Presented, sort: RequestSort, work: () => Promise<T>): Promise<T>
}

/** See RequestCounts. Without limits nothing is counted. Requests below `/v2/` without a credential are no refusals: every pull begins with one. */
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

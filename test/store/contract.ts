import { beforeEach, describe } from 'vitest'
import { electionContract } from './contract-election.ts'
import { lifecycleContract } from './contract-lifecycle.ts'
import { rangeContract } from './contract-range.ts'
import { transactContract } from './contract-transact.ts'
import { watchContract } from './contract-watch.ts'
import type { StoreUnderTest } from './store-harness.ts'

/** The contract of all store adapters. `open` gives each test an empty key space and closes it after the test. */
export function storeContract(adapter: string, open: () => Promise<StoreUnderTest>): void {
  describe(`the store contract on ${adapter}`, () => {
    let opened: StoreUnderTest
    beforeEach(async () => {
      opened = await open()
    })
    const subject = (): StoreUnderTest => opened
    describe('get and range', () => rangeContract(subject))
    describe('transact', () => transactContract(subject))
    describe('watch and revision', () => watchContract(subject))
    describe('elect', () => electionContract(subject))
    describe('close and restart', () => lifecycleContract(subject))
  })
}

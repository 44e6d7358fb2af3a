import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { createDiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { upstreamContract } from './contract/contract.ts'

describe('the embedded upstream keeps the contract', () => {
  upstreamContract(async () => {
    const directory = await mkdtemp(join(tmpdir(), 'taproot-upstream-'))
    const open = () => createDiskUpstream({ directory, clock: Date, random: { bytes: randomBytes } })
    return { upstream: await open(), another: open, stop: () => rm(directory, { recursive: true, force: true }) }
  })
})

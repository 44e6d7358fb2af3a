import { describe } from 'vitest'
import { createHttpUpstream, type HttpUpstreamOptions } from '../../../src/registry/upstream/http/http-upstream.ts'
import { registryAccount, startRegistry, type RegistryOptions } from '../../support/parts/registry.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { upstreamContract } from './contract/contract.ts'
import { startTokenService } from './token-service.ts'

describeWithPart('registry', 'a distribution registry keeps the contract', () => {
  describe('without authentication', () => upstreamContract(() => startOver({}, {})))

  describe('with tokens, below a prefix', () => {
    upstreamContract(async () => {
      const service = await startTokenService()
      const running = await startOver({ auth: service.auth }, { ...registryAccount, password: () => registryAccount.password, prefix: 'taproot/content' })
      const stop = async () => {
        await running.stop()
        await service.stop()
      }
      return { ...running, stop }
    })
  })
})

async function startOver(registryOptions: RegistryOptions, options: Partial<HttpUpstreamOptions>) {
  const registry = await startRegistry(registryOptions)
  const open = () => createHttpUpstream({ url: registry.url, clock: Date, ...options })
  const upstream = open()
  const others = [upstream]
  return {
    upstream,
    another: () => {
      const other = open()
      others.push(other)
      return Promise.resolve(other)
    },
    stop: async () => {
      await Promise.all(others.map((each) => each.close()))
      await registry.stop()
    },
  }
}

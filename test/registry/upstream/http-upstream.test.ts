import { createHttpUpstream, type HttpUpstreamOptions } from '../../../src/registry/upstream/http/http-upstream.ts'
import { registryAccount, startRegistry, type RegistryOptions } from '../../parts/registry.ts'
import { describeWithPart } from '../../parts/require-part.ts'
import { upstreamContract } from './contract.ts'

describeWithPart('registry', 'a distribution registry keeps the contract', () => {
  contractOver({}, {})
})

describeWithPart('registry', 'a distribution registry that asks for a password keeps the contract, below a prefix', () => {
  contractOver({ auth: 'basic' }, { ...registryAccount, prefix: 'taproot/content' })
})

function contractOver(registryOptions: RegistryOptions, options: Partial<HttpUpstreamOptions>): void {
  upstreamContract(async () => {
    const registry = await startRegistry(registryOptions)
    const opened = [open()]
    function open() {
      return createHttpUpstream({ url: registry.url, clock: Date, ...options })
    }
    return {
      upstream: opened[0]!,
      another: async () => {
        const more = open()
        opened.push(more)
        return more
      },
      stop: async () => {
        await Promise.all(opened.map((each) => each.close()))
        await registry.stop()
      },
    }
  })
}

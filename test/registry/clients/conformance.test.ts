import { expect, onTestFinished, test } from 'vitest'
import { isFullTier } from '../../support/tier.ts'
import { describeOverBoth } from './client-world.ts'

/** Versions of the distribution specification that the suite tests, the newest last. */
const versions = ['1.1', 'dev'] as const

describeOverBoth('the OCI conformance suite', (start) => {
  test.runIf(isFullTier).for(versions)('version %s passes completely', async (version) => {
    const world = await start()
    onTestFinished(() => world.stop())
    const { host, organisation, token } = world
    const names = { OCI_REGISTRY: host, OCI_TLS: 'disabled', OCI_REPO1: `${organisation}/first`, OCI_REPO2: `${organisation}/second` }
    const { stdout } = await world.runAnyway('oci-conformance', [], { env: { ...names, OCI_VERSION: version, OCI_USERNAME: '_token', OCI_PASSWORD: token } })
    // One line for each test, indented by its depth: the tests directly below the suite.
    const outcomes = [...stdout.matchAll(/^ {2}OCI Conformance Test\/(\S[^/\n]*): (\w+)$/gm)].map(([, name, outcome]) => ({ name, outcome }))
    expect(outcomes.length).toBeGreaterThan(20)
    expect(stdout).toMatch(/^OCI Conformance Result: /m)
    const failed = outcomes.filter(({ outcome }) => outcome !== 'Pass' && outcome !== 'Skip' && outcome !== 'Disabled').map(({ name }) => name)
    expect(failed).toEqual([])
  })
})

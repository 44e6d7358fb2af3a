import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { pushManifest, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { startTestServer, type TestServer } from '../../../support/test-server.ts'
import { isFullTier } from '../../../support/tier.ts'
import type { TestManifest } from '../../oci/oci-client.ts'
import { Authority, identity } from '../../policies/signing.ts'
import { Cosign, layouts, nameOf, plainHttp, pull, requireSignature, statusOf } from './cosign.ts'
import { identityToken, startSigstore, type SigstoreServices } from './sigstore-services.ts'

const hourMs = 3_600_000
const authority = new Authority()
const stranger = new Authority()

let folder: string
let server: TestServer
let cosign: Cosign
let trusted: SigstoreServices
let strange: SigstoreServices

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'taproot-trusted-root-'))
  const trustedRoot = join(folder, 'trusted_root.json')
  await writeFile(trustedRoot, JSON.stringify(await authority.trustedRoot()))
  cosign = await Cosign.start()
  await cosign.write('trusted_root.json', await authority.trustedRoot())
  trusted = await startSigstore(authority)
  strange = await startSigstore(stranger)
  server = await startTestServer({ store: 'sqlite', env: { TAPROOT_REGISTRY_SIGNATURES_TRUSTED_ROOT_FILE: trustedRoot } })
})

afterAll(async () => {
  await server?.stop()
  for (const services of [trusted, strange]) await services?.stop()
  await cosign?.stop()
  await rm(folder, { recursive: true, force: true })
})

/** How to sign. cosign checks what it made with a trusted root, unless it gets the key of another log of certificates. */
interface KeylessSigning {
  readonly services: SigstoreServices
  readonly who: Readonly<Record<keyof typeof identity, string>>
  readonly flags: readonly string[]
  readonly isChecked?: boolean
}

/** Lets cosign sign an image with a certificate for an identity. */
async function sign(world: ImageWorld, image: TestManifest, { services, who, flags, isChecked = false }: KeylessSigning): Promise<void> {
  const urls = ['--use-signing-config=false', '--fulcio-url', services.url, '--rekor-url', services.url]
  const unchecked = { SIGSTORE_CT_LOG_PUBLIC_KEY_FILE: 'none' }
  const options = [...urls, '--identity-token', identityToken(who), '--yes', ...plainHttp, ...flags]
  const checks = isChecked ? ['--trusted-root', 'trusted_root.json'] : []
  await cosign.run(['sign', ...options, ...checks, nameOf(world, image)], { env: isChecked ? {} : unchecked })
}

/** Lets cosign verify an image. Rejects if it finds no valid signature of `identity`. */
function verify(world: ImageWorld, image: TestManifest, flags: readonly string[]): Promise<void> {
  const who = ['--certificate-identity', identity.subject, '--certificate-oidc-issuer', identity.issuer]
  return cosign.run(['verify', '--trusted-root', 'trusted_root.json', ...who, ...plainHttp, ...flags, nameOf(world, image)])
}

for (const [layout, flags] of layouts)
  test.runIf(isFullTier)(
    `of the images that cosign signs without a key in ${layout}, those may be pulled whose certificate is right and was valid`,
    { timeout: 300_000 },
    async () => {
      const world = await cosign.makeWorld(server)
      const uid = await requireSignature(world, { identities: [identity] })
      const image = await withRegistry(world, (client) => client.image(world.path))
      await pushManifest(world, 'v1', image)
      expect((await pull(world, 'v1')).text).toContain('there is no signature')

      trusted.loggedAfterMs = hourMs
      await sign(world, image, { services: trusted, who: identity, flags })
      trusted.loggedAfterMs = 0
      expect(await pull(world, 'v1')).toEqual({ status: 403, text: expect.stringContaining('certificate is not valid or expired') as unknown })
      await sign(world, image, { services: strange, who: identity, flags })
      expect(await statusOf(world, 'v1')).toBe(403)
      await expect(verify(world, image, flags)).rejects.toThrow('cosign verify')
      await sign(world, image, { services: trusted, who: { ...identity, subject: 'https://example.com/build@other' }, flags, isChecked: true })
      expect(await statusOf(world, 'v1')).toBe(403)
      await sign(world, image, { services: trusted, who: { ...identity, issuer: 'https://other.example' }, flags, isChecked: true })
      expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([403, 403])

      await sign(world, image, { services: trusted, who: identity, flags, isChecked: true })
      expect([await statusOf(world, 'v1'), await statusOf(world, image.digest)]).toEqual([200, 200])
      await verify(world, image, flags)
      await requireSignature(world, { identities: [{ ...identity, subject: 'https://example.com/build@third' }] }, uid)
      expect(await statusOf(world, 'v1')).toBe(403)
      await requireSignature(world, { identities: [{ issuer: identity.issuer, subjectPattern: 'https://example.com/*@other' }] }, uid)
      expect(await statusOf(world, 'v1')).toBe(200)
    },
  )

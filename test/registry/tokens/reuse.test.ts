import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { registrySuite } from './registry-suite.ts'
import { basic, bearer, partOf } from './registry-world.ts'

registrySuite('a registry token', (suite) => {
  const scope = (actions = 'pull'): string => `repository:${suite.mine.path}:${actions}`
  const tokenOf = (authorization: string | undefined, actions?: string): Promise<string> => suite.world.tokenFor(scope(actions), authorization)
  /** The tokens of successive requests at one moment. */
  const atOnce = (...asked: readonly (() => Promise<string>)[]): Promise<readonly string[]> =>
    suite.clock.hold(async () => {
      const tokens: string[] = []
      for (const ask of asked) tokens.push(await ask())
      return tokens
    })

  describe('a reused token', () => {
    test('a reused token is returned to the same credential with the same grants, for a second', async () => {
      const { authorization } = suite.mine
      const [one, other] = await atOnce(
        () => tokenOf(authorization),
        () => tokenOf(basic('_token', authorization.slice('Bearer '.length))),
      )
      expect(other).toBe(one)
      suite.clock.advance(1000)
      const later = await tokenOf(authorization)
      expect(later).not.toBe(one)
      expect(await suite.world.list(suite.mine.path, bearer(later))).toMatchObject({ status: 200 })
    })
  })

  test('the answer shows the original issue time of a reused token', async () => {
    suite.clock.advance(5_000)
    const answers = await suite.clock.hold(async () => {
      const first = await suite.world.requestToken([scope()], suite.mine.authorization)
      return [first, await suite.world.requestToken([scope()], suite.mine.authorization)]
    })
    for (const { token, body } of answers) {
      const { iat_ms: madeMs } = partOf(token, 1)
      expect(JSON.parse(body)).toMatchObject({ token: answers[0]?.token, issued_at: new Date(Number(madeMs)).toISOString() })
    }
  })

  describe('a new token is issued', () => {
    test('a new token is issued for another identity, actor, narrower credential, other actions or another image', async () => {
      const { owner, authorization, group } = suite.mine
      const other = await suite.world.member(group, { role: 'owner' })
      const restricted = bearer(await suite.world.accessToken(owner, { restrictions: { scopes: [trustedUid(group)] } }))
      const delegate = bearer(await suite.world.accessToken(owner, { actor: { issuer: 'https://issuer.example', subject: 'another' } }))
      const tokens = await atOnce(
        () => tokenOf(authorization),
        () => tokenOf(other.authorization),
        () => tokenOf(delegate),
        () => tokenOf(restricted),
        () => tokenOf(authorization, 'pull,push'),
        () => suite.world.tokenFor(`repository:${suite.mine.name}/another:push`, authorization),
      )
      expect(new Set(tokens).size).toBe(tokens.length)
    })

    test('a new token is issued for a recreated repo of the same name', async () => {
      const path = `${suite.mine.name}/again`
      const uidOf = async (): Promise<unknown> =>
        suite.world.claimsOf(await suite.world.tokenFor(`repository:${path}:pull`, suite.mine.authorization)).access[0]?.uid
      const first = await suite.world.repo(suite.mine.group, 'again')
      await suite.clock.hold(async () => {
        expect(await uidOf()).toBe(first)
        await suite.world.operate('DeleteRepo', { uid: first })
        const second = await suite.world.repo(suite.mine.group, 'again')
        expect(await uidOf()).toBe(second)
      })
    })

    test('a new token is issued as soon as the rights change', async () => {
      const { group, path } = suite.mine
      const member = await suite.world.member(group, { role: 'registry.pull' })
      const accessOf = async (): Promise<unknown> => suite.world.claimsOf(await tokenOf(member.authorization, 'pull,push')).access
      await suite.clock.hold(async () => {
        expect(await accessOf()).toMatchObject([{ name: path, actions: ['pull'] }])
        const binding = await suite.world.bind(group, member.uid, 'registry.push')
        expect(await accessOf()).toMatchObject([{ name: path, actions: ['pull', 'push'] }])
        await suite.world.operate('DeleteRoleBinding', { uid: binding })
        expect(await accessOf()).toMatchObject([{ name: path, actions: ['pull'] }])
      })
    })
  })
})

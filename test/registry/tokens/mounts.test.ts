import { expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { freshName } from '../../support/test-server.ts'
import { registrySuite } from './registry-suite.ts'
import { bearer } from './registry-world.ts'

registrySuite('mounts between repositories, by the real gate', (suite) => {
  /** Puts a blob into a repository. */
  async function blob(path: string, authorization: string): Promise<string> {
    const bytes = Buffer.from(freshName('blob'))
    const digest = digestOf(bytes)
    const begun = await suite.world.upload(path, authorization)
    expect(begun).toMatchObject({ status: 202 })
    const location = String(begun.headers.location)
    const headers = { 'content-type': 'application/octet-stream', 'content-length': String(bytes.length) }
    const put = await suite.world.ask({
      method: 'PUT',
      path: `${location}${location.includes('?') ? '&' : '?'}digest=${digest}`,
      authorization,
      headers,
      body: bytes,
    })
    expect(put).toMatchObject({ status: 201 })
    return digest
  }

  const mount = async (digest: string, from: string, authorization: string): Promise<number> =>
    (await suite.world.upload(suite.mine.path, authorization, `?mount=${digest}&from=${from}`)).status

  test('a mount works from a repository of the caller, if the credential allows both', async () => {
    const { world, mine } = suite
    const name = freshName('source')
    await world.repo(mine.group, name)
    const source = `${mine.name}/${name}`
    const digest = await blob(source, mine.authorization)
    const push = `repository:${mine.path}:pull,push`
    const both = bearer((await world.requestToken([push, `repository:${source}:pull`], mine.authorization)).token)
    const pushOnly = bearer(await world.tokenFor(push, mine.authorization))
    expect(await mount(digest, source, pushOnly)).toBe(202)
    expect(await mount(digest, source, both)).toBe(201)
  })

  test('a mount without a sufficient token gets a challenge that names `pull` for the source', async () => {
    const { world, mine, theirs } = suite
    const digest = digestOf(Buffer.from('mounted'))
    const challenge = async (query: string, authorization?: string): Promise<string | undefined> => {
      const { status, headers } = await world.upload(mine.path, authorization, query)
      expect(status).toBe(401)
      return /scope="([^"]*)"/.exec(String(headers['www-authenticate']))?.[1]
    }
    const push = `repository:${mine.path}:push`
    const pullOnly = bearer(await world.tokenFor(`repository:${mine.path}:pull`, mine.authorization))
    const both = `${push} repository:${theirs.path}:pull`
    expect(await challenge(`?mount=${digest}&from=${theirs.path}`)).toBe(both)
    expect(await challenge(`?mount=${digest}&from=${theirs.path}`, pullOnly)).toBe(both)
    expect(await challenge(`?mount=${digest}&from=${mine.path}`)).toBe(`repository:${mine.path}:pull,push`)
    for (const from of ['../x/y', 'x"y/z', 'alone', '']) expect(await challenge(`?mount=${digest}&from=${encodeURIComponent(from)}`)).toBe(push)
    expect(await challenge(`?from=${theirs.path}`)).toBe(push)
  })

  test('a mount from another tenant gives nothing, in every spelling and with any credential', async () => {
    const { world, mine, theirs } = suite
    const digest = await blob(theirs.path, theirs.authorization)
    const [tenant, repo] = theirs.path.split('/') as [string, string]
    const spellings = [
      theirs.path,
      `${theirs.group}/app`,
      theirs.repo,
      `${mine.name}/../${theirs.path}`,
      `${mine.path}/../../${theirs.path}`,
      `./${theirs.path}`,
      `/${theirs.path}`,
      `${tenant}//${repo}`,
      encodeURIComponent(theirs.path),
      encodeURIComponent(encodeURIComponent(theirs.path)),
      `${tenant.toUpperCase()}/${repo}`,
      `${theirs.path}%00`,
      `${theirs.path}%23`,
      `${theirs.path}&from=${mine.path}`,
      `${mine.path}&from=${theirs.path}`,
      '',
    ]
    const token = bearer((await world.requestToken([`repository:${mine.path}:pull,push`, `repository:${theirs.path}:pull`], mine.authorization)).token)
    for (const spelling of spellings) {
      for (const authorization of [mine.authorization, token]) {
        const status = await mount(digest, spelling, authorization)
        expect([202, 400, 404], `${spelling}: ${status}`).toContain(status)
      }
    }
    expect(await world.ask({ method: 'HEAD', path: `/v2/${mine.path}/blobs/${digest}`, authorization: mine.authorization })).toMatchObject({ status: 404 })
  })

  test('a mount from the public organisation works for anybody who may push', async () => {
    const { world, free, mine } = suite
    const digest = await blob(free.path, free.authorization)
    expect(await mount(digest, free.path, mine.authorization)).toBe(201)
    const token = bearer((await world.requestToken([`repository:${mine.path}:pull,push`, `repository:${free.path}:pull`], mine.authorization)).token)
    const second = await blob(free.path, free.authorization)
    expect(await mount(second, free.path, token)).toBe(201)
  })
})

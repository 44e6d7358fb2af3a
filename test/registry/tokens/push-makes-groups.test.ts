import { expect, test } from 'vitest'
import { freshName } from '../../support/test-server.ts'
import { lineage, trustedUid } from '../../../src/base/uid.ts'
import { registrySuite } from './registry-suite.ts'
import { bearer } from './registry-world.ts'

registrySuite('a push below groups that are not there', (suite) => {
  /** The paths of all repos below a group. */
  const pathsBelow = (group: string): string[] => {
    const { tables } = suite.world.server.running.engine.cache
    const nameOf = (uid: string): string => (tables.get('Repo', uid) ?? tables.get('Group', uid))?.name ?? ''
    const repos = [...tables.table('Repo').records()].filter((record) => record.uid.startsWith(`${group}/`))
    return repos.map((record) => [...lineage(trustedUid(record.uid))].map(nameOf).reverse().join('/'))
  }

  test('a push below missing groups creates the groups and the repo, with a token requested before they existed', async () => {
    const { world, mine } = suite
    const path = `${mine.name}/${freshName('team')}/${freshName('tools')}/app`
    const token = await world.tokenFor(`repository:${path}:pull,push`, mine.authorization)
    expect((await world.upload(path, bearer(token))).status).toBe(202)
    expect(pathsBelow(mine.group)).toContain(path)
    expect((await world.upload(path, bearer(token))).status).toBe(202)
    expect(await world.list(path, bearer(token))).toMatchObject({ status: 200 })
  })

  test('a push below missing groups by many clients at once creates each of them once', async () => {
    const { world, mine } = suite
    const team = freshName('team')
    const paths = ['one', 'two', 'one', 'two', 'one'].map((name) => `${mine.name}/${team}/${name}`)
    const answers = await Promise.all(paths.map((path) => world.upload(path, mine.authorization)))
    expect(answers.map(({ status }) => status)).toEqual(paths.map(() => 202))
    expect(
      pathsBelow(mine.group)
        .filter((path) => path.includes(`/${team}/`))
        .sort(),
    ).toEqual([...new Set(paths)].sort())
  })

  test('a push below missing groups needs the right to create groups in addition to that to push', async () => {
    const { world, mine } = suite
    const { authorization } = await world.member(mine.group, { role: 'editor' })
    const team = freshName('team')
    expect(await world.upload(`${mine.name}/${team}/app`, authorization)).toMatchObject({ status: 403, codes: ['DENIED'] })
    expect((await world.upload(`${mine.name}/${freshName('app')}`, authorization)).status).toBe(202)
    expect(pathsBelow(mine.group).some((path) => path.includes(team))).toBe(false)
  })

  test('a push below missing groups never creates a root group', async () => {
    const { world, mine } = suite
    const root = freshName('unknown')
    expect(await world.upload(`${root}/app`, mine.authorization)).toMatchObject({ status: 403, codes: ['DENIED'] })
    expect([...world.server.running.engine.cache.tables.table('Group').matching('name', root)]).toEqual([])
  })

  test('a push below missing groups never creates anything in a group of another tenant', async () => {
    const { world, mine, theirs } = suite
    const path = `${theirs.name}/${freshName('team')}/app`
    expect(await world.upload(path, mine.authorization)).toMatchObject({ status: 403, codes: ['DENIED'] })
    expect(pathsBelow(theirs.group)).not.toContain(path)
  })

  test('a push below missing groups without an organisation gets an explanation of repository names', async () => {
    const { world, mine } = suite
    const answer = await world.upload('hello', mine.authorization)
    expect(answer).toMatchObject({ status: 400, codes: ['NAME_INVALID'] })
    expect(answer.body).toContain('<organization>/<image>')
    expect(await world.upload('hello')).toMatchObject({ status: 400, codes: ['NAME_INVALID'] })
  })

  test('a push below missing groups with an invalid group name is refused with the reason and creates nothing', async () => {
    const { world, mine } = suite
    const tooLong = 'x'.repeat(64)
    const answer = await world.upload(`${mine.name}/${tooLong}/app`, mine.authorization)
    expect(answer).toMatchObject({ status: 400, codes: ['NAME_INVALID'] })
    expect(answer.body).toContain('name')
    expect(answer.body).toContain(`\\"${tooLong}\\"`)
    expect(answer.body).toContain(`${mine.name}/${tooLong}/app`)
    expect(pathsBelow(mine.group)).not.toContain(`${mine.name}/${tooLong}/app`)
  })
})

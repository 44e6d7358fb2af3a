import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long } from '../bad-fields.ts'
import { badRepo } from '../bad-repos.ts'
import type { MethodCase } from './method-case.ts'
import { made, type World } from '../world.ts'

function newRepo(world: World, name = freshName('repo'), parent = world.group): Promise<string> {
  return made(world, 'CreateRepo', { parent, repo: { name } })
}

/** ReposService, without the readme. */
const repoCases: Readonly<Record<string, MethodCase>> = {
  'ReposService/GetRepo': { request: async (world): Promise<JsonObject> => ({ uid: await newRepo(world) }), badInputs: [] },
  'ReposService/DeleteRepo': { request: async (world) => ({ uid: await newRepo(world) }), badInputs: [] },
  'ReposService/ListRepos': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      item: async (world, parent) => {
        await newRepo(world, freshName('listed'), parent)
        if (parent === world.group) await newRepo(world, 'walk', parent).catch(() => '')
      },
      filters: () => [{ name: 'walk' }],
    },
    badInputs: [{ what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'ReposService/CreateRepo': {
    request: (world) => ({ parent: world.group, repo: { name: freshName('made') } }),
    badInputs: [
      { what: 'no repo at all', breaks: ['repo:required'], request: ({ parent = '' }) => ({ parent }), fields: ['name'] },
      {
        what: 'a name that another repo of the group has',
        request: async ({ parent = '' }, world) => {
          const name = freshName('taken')
          await newRepo(world, name)
          return { parent, repo: { name } }
        },
        code: 6,
      },
      { what: 'a repo for a parent', request: async (valid, world) => ({ ...valid, parent: await newRepo(world) }), code: 5 },
      {
        what: 'a source of another tenant',
        request: async (valid, world) => ({
          ...valid,
          repo: { name: freshName('synced'), syncConfig: { source: await newRepo(world, undefined, world.other.group) } },
        }),
        fields: ['sync_config.source'],
      },
      ...inCreate('repo', badRepo),
    ],
  },
  'ReposService/UpdateRepo': {
    request: async (world) => ({ repo: { uid: await newRepo(world), description: 'changed' } }),
    badInputs: [
      {
        what: 'a name that another repo of the group has',
        request: async ({ repo }, world) => {
          const name = freshName('taken')
          await newRepo(world, name)
          return { repo: { ...(repo as JsonObject), name } } // the valid request above
        },
        code: 6,
      },
      ...inUpdate('repo', badRepo),
    ],
  },
}

/** The readme of a repo. */
const readmeCases: Readonly<Record<string, MethodCase>> = {
  'ReposService/GetRepoReadme': { request: async (world): Promise<JsonObject> => ({ uid: await newRepo(world) }), badInputs: [] },
  'ReposService/UpdateRepoReadme': {
    request: async (world) => ({ repoReadme: { uid: await newRepo(world), content: '# Readme' } }),
    badInputs: inUpdate('repo_readme', [
      { what: 'more than 512 KiB', breaks: ['content:string.max_bytes'], set: { content: long(524_289) } },
      { what: 'a script', set: { content: 'Hello <script>alert(1)</script>' }, fields: ['content'] },
      { what: 'a number for the content', only: 'rest', set: { content: 1 }, fields: ['content'] },
    ]),
  },
}

/** Creates a repo of the other tenant, synced with one of this organisation by an operator. */
async function mirrored(world: World): Promise<{ source: string; mirror: string }> {
  const source = await newRepo(world)
  const repo = { name: freshName('mirror'), syncConfig: { source } }
  return { source, mirror: await made(world, 'CreateRepo', { parent: world.other.group, repo }) }
}

/** The list of mirrors of a repo. */
const mirrorCases: Readonly<Record<string, MethodCase>> = {
  'ReposService/ListMirrors': { request: async (world) => ({ parent: (await mirrored(world)).source, orderBy: 'uid desc', pageSize: 200 }), badInputs: [] },
  'ReposService/EndMirror': {
    request: async (world) => {
      const { source, mirror } = await mirrored(world)
      return { parent: source, mirrorUid: mirror }
    },
    badInputs: [
      { what: 'no mirror', breaks: ['mirror_uid:required'], request: ({ parent = '' }) => ({ parent }), fields: ['mirror_uid'] },
      {
        what: 'a mirror whose uid is too long',
        breaks: ['mirror_uid:string.max_len'],
        request: (valid) => ({ ...valid, mirrorUid: long(256) }),
        fields: ['mirror_uid'],
      },
      { what: 'a repo that is no mirror', request: async (valid, world) => ({ ...valid, mirrorUid: await newRepo(world) }), code: 5 },
      { what: 'a mirror of another repo', request: async (valid, world) => ({ ...valid, mirrorUid: (await mirrored(world)).mirror }), code: 5 },
    ],
  },
}

/** The registry domain. */
export const registryCases: Readonly<Record<string, MethodCase>> = { ...repoCases, ...readmeCases, ...mirrorCases }

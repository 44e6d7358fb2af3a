import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long, type BadField } from '../bad-fields.ts'
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

const severityRule = { maxSeverity: 'HIGH', mode: 'ENFORCE' } as const
const digest = `sha256:${'0'.repeat(64)}`
const endTime = '2999-01-01T00:00:00.000Z'
const exception = (fields: JsonObject): JsonObject => ({ exceptions: [{ digest, endTime, ...fields }] })

const signed = (requireSignature: JsonObject): JsonObject => ({ rules: [{ requireSignature, mode: 'WARN' }] })
const identified = (fields: JsonObject): JsonObject => signed({ identities: [{ issuer: 'https://issuer.example', subject: 'a', ...fields }] })

const badSignatures: readonly BadField[] = [
  { what: 'a required signature without keys and identities', set: signed({}), fields: ['rules.require_signature'] },
  { what: 'a key that is none', set: signed({ keys: ['a key'] }), fields: ['rules.require_signature.keys'] },
  {
    what: 'more than 10 keys',
    breaks: ['rules.require_signature.keys:repeated.max_items'],
    set: signed({ keys: Array.from({ length: 11 }, () => 'a key') }),
  },
  { what: 'an empty key', breaks: ['rules.require_signature.keys[]:string.min_len'], set: signed({ keys: [''] }) },
  { what: 'a key that is too long', breaks: ['rules.require_signature.keys[]:string.max_len'], set: signed({ keys: [long(2_049)] }) },
  {
    what: 'more than 20 identities',
    breaks: ['rules.require_signature.identities:repeated.max_items'],
    set: signed({ identities: Array.from({ length: 21 }, () => ({ issuer: 'a', subject: 'a' })) }),
  },
  { what: 'an identity without an issuer', breaks: ['rules.require_signature.identities.issuer:required'], set: identified({ issuer: '' }) },
  {
    what: 'an issuer that is too long',
    breaks: ['rules.require_signature.identities.issuer:string.max_len'],
    set: identified({ issuer: long(513) }),
  },
  {
    what: 'an identity without a subject',
    breaks: ['rules.require_signature.identities.subject_condition:oneof.required'],
    set: signed({ identities: [{ issuer: 'a' }] }),
    fields: ['rules.require_signature.identities.subject'],
  },
  { what: 'an empty subject', breaks: ['rules.require_signature.identities.subject:string.min_len'], set: identified({ subject: '' }) },
  { what: 'a subject that is too long', breaks: ['rules.require_signature.identities.subject:string.max_len'], set: identified({ subject: long(1_025) }) },
  {
    what: 'an empty pattern',
    breaks: ['rules.require_signature.identities.subject_pattern:string.min_len'],
    set: signed({ identities: [{ issuer: 'a', subjectPattern: '' }] }),
  },
  {
    what: 'a pattern that is too long',
    breaks: ['rules.require_signature.identities.subject_pattern:string.max_len'],
    set: signed({ identities: [{ issuer: 'a', subjectPattern: long(1_025) }] }),
  },
]

const badPullPolicy: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'a name with a space', breaks: ['name:string.pattern'], set: { name: 'a name' } },
  { what: 'a description longer than 512 characters', breaks: ['description:string.max_len'], set: { description: long(513) } },
  { what: 'more than 20 rules', breaks: ['rules:repeated.max_items'], set: { rules: Array.from({ length: 21 }, () => severityRule) } },
  { what: 'a rule without a condition', breaks: ['rules.condition:oneof.required'], set: { rules: [{ mode: 'WARN' }] } },
  { what: 'a rule without a mode', breaks: ['rules.mode:required'], set: { rules: [{ maxSeverity: 'HIGH' }] } },
  {
    what: 'a mode whose number is unknown',
    breaks: ['rules.mode:enum.defined_only'],
    set: { rules: [{ requireSbom: true, mode: 99 }] },
  },
  {
    what: 'an answer to what is unknown whose number is unknown',
    breaks: ['rules.on_unknown:enum.defined_only'],
    set: { rules: [{ ...severityRule, onUnknown: 99 }] },
  },
  {
    what: 'a severity whose number is unknown',
    breaks: ['rules.max_severity:enum.defined_only'],
    set: { rules: [{ ...severityRule, maxSeverity: 99 }] },
  },
  {
    what: 'a severity that allows everything',
    breaks: ['rules.max_severity:enum.not_in'],
    set: { rules: [{ ...severityRule, maxSeverity: 'CRITICAL' }] },
  },
  {
    what: 'an age of no day',
    breaks: ['rules.max_age_days:int32.gte'],
    set: { rules: [{ maxAgeDays: 0, mode: 'WARN' }] },
  },
  { what: 'an age of more than a century', set: { rules: [{ maxAgeDays: 36_501, mode: 'WARN' }] }, fields: ['rules.max_age_days'] },
  { what: 'a rule that asks for no SBOM', set: { rules: [{ requireSbom: false, mode: 'WARN' }] }, fields: ['rules.require_sbom'] },
  { what: 'a rule that denies no deprecated tag', set: { rules: [{ denyDeprecated: false, mode: 'WARN' }] }, fields: ['rules.deny_deprecated'] },
  ...badSignatures,
  {
    what: 'more than 200 exceptions',
    breaks: ['exceptions:repeated.max_items'],
    set: { exceptions: Array.from({ length: 201 }, () => ({ digest, endTime })) },
  },
  { what: 'an exception without an end', breaks: ['exceptions.end_time:required'], set: { exceptions: [{ digest }] } },
  { what: 'an exception from nothing', set: { exceptions: [{ endTime }] }, fields: ['exceptions'] },
  { what: 'an exception for a repo elsewhere', set: exception({ repoUid: 'a'.repeat(40) }), fields: ['exceptions.repo_uid'] },
  {
    what: 'an exception for a uid that is too long',
    breaks: ['exceptions.repo_uid:string.max_len'],
    set: exception({ repoUid: long(1025) }),
  },
  {
    what: 'an exception for a digest that is none',
    breaks: ['exceptions.digest:string.pattern'],
    set: exception({ digest: 'sha256:0' }),
  },
  {
    what: 'an exception for an id that is too long',
    breaks: ['exceptions.vulnerability:string.max_len'],
    set: exception({ vulnerability: long(129) }),
  },
  {
    what: 'a reason that is too long',
    breaks: ['exceptions.reason:string.max_len'],
    set: exception({ reason: long(513) }),
  },
]

function newPullPolicy(world: World, name = freshName('policy'), parent = world.group): Promise<string> {
  return made(world, 'CreatePullPolicy', { parent, pullPolicy: { name, rules: [severityRule] } })
}

/** PullPoliciesService. */
const pullPolicyCases: Readonly<Record<string, MethodCase>> = {
  'PullPoliciesService/GetPullPolicy': { request: async (world): Promise<JsonObject> => ({ uid: await newPullPolicy(world) }), badInputs: [] },
  'PullPoliciesService/DeletePullPolicy': { request: async (world) => ({ uid: await newPullPolicy(world) }), badInputs: [] },
  'PullPoliciesService/ListPullPolicies': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      item: async (world, parent) => {
        await newPullPolicy(world, freshName('listed'), parent)
        if (parent === world.group) await newPullPolicy(world, 'walk', parent).catch(() => '')
      },
      filters: () => [{ name: 'walk' }],
    },
    badInputs: [{ what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'PullPoliciesService/CreatePullPolicy': {
    request: (world) => ({ parent: world.group, pullPolicy: { name: freshName('made'), rules: [severityRule] } }),
    badInputs: [
      { what: 'no policy at all', breaks: ['pull_policy:required'], request: ({ parent = '' }) => ({ parent }), fields: ['name'] },
      {
        what: 'a name that another policy of the group has',
        request: async ({ parent = '' }, world) => {
          const name = freshName('taken')
          await newPullPolicy(world, name)
          return { parent, pullPolicy: { name } }
        },
        code: 6,
      },
      ...inCreate('pull_policy', badPullPolicy),
    ],
  },
  'PullPoliciesService/UpdatePullPolicy': {
    request: async (world) => ({ pullPolicy: { uid: await newPullPolicy(world), description: 'changed' } }),
    badInputs: inUpdate('pull_policy', badPullPolicy),
  },
  'PullPoliciesService/DryRunPullPolicy': {
    request: (world) => ({ parent: world.group, pullPolicy: { name: 'planned', rules: [severityRule] } }),
    badInputs: [
      ...inCreate('pull_policy', badPullPolicy).map(({ fields, ...bad }) => ({
        ...bad,
        ...(fields && { fields: fields.map((field) => `pull_policy.${field}`) }),
      })),
      { what: 'a policy that the group does not have', request: async (valid, world) => ({ ...valid, replaces: `${world.group}/0123456789abcdef` }), code: 5 },
      {
        what: 'a replaced policy whose uid is too long',
        breaks: ['replaces:string.max_len'],
        request: (valid) => ({ ...valid, replaces: long(1025) }),
        fields: ['replaces'],
      },
      { what: 'a negative page size', breaks: ['page_size:int32.gte'], request: (valid) => ({ ...valid, pageSize: -1 }), fields: ['page_size'] },
      {
        what: 'a page token that is too long',
        breaks: ['page_token:string.max_len'],
        request: (valid) => ({ ...valid, pageToken: long(4097) }),
        fields: ['page_token'],
      },
      { what: 'a page token that is none', request: (valid) => ({ ...valid, pageToken: 'garbage' }), fields: ['page_token'] },
      { what: 'a start that is no time', only: 'rest', request: (valid) => ({ ...valid, startTime: 'yesterday' }), fields: ['start_time'] },
    ],
  },
}

/** The registry domain. */
export const registryCases: Readonly<Record<string, MethodCase>> = { ...repoCases, ...readmeCases, ...mirrorCases, ...pullPolicyCases }

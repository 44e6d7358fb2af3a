import type { JsonObject } from '@bufbuild/protobuf'
import { long, pairs, type BadField } from './bad-fields.ts'

/** Returns faults in one nested part of a repo, at the path of that part. */
function inPart(place: string, wrap: (part: JsonObject) => JsonObject): (what: string, breaks: string | readonly string[], part: JsonObject) => BadField {
  return (what, breaks, part) =>
    typeof breaks === 'string'
      ? { what, breaks: [`${place}.${breaks}`], set: wrap(part) }
      : { what, fields: breaks.map((field) => `${place}.${field}`), set: wrap(part) }
}

const sync = inPart('sync_config', (syncConfig) => ({ syncConfig }))
const overlay = inPart('custom_overlay', (customOverlay) => ({ customOverlay }))
const contents = inPart('custom_overlay.contents', (part) => ({ customOverlay: { contents: part } }))
const accounts = inPart('custom_overlay.accounts', (part) => ({ customOverlay: { accounts: part } }))
const certificates = inPart('custom_overlay.certificates', (part) => ({ customOverlay: { certificates: part } }))

/** Returns `count` different texts. */
function texts(count: number, text = (at: number): string => `text${at}`): string[] {
  return Array.from({ length: count }, (_, at) => text(at))
}

function copies(count: number, item: JsonObject): JsonObject[] {
  return Array.from({ length: count }, () => item)
}

const badPlain: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'an empty name', breaks: ['name:required'], set: { name: '' } },
  { what: 'a name with capitals', breaks: ['name:string.pattern'], set: { name: 'Nginx' } },
  { what: 'a name with a slash', breaks: ['name:string.pattern'], set: { name: 'web/nginx' } },
  { what: 'a name of 256 characters', breaks: ['name:string.max_len'], set: { name: long(256) } },
  { what: 'a name that makes the path longer than 255 characters', set: { name: long(255) }, fields: ['name'] },
  { what: 'a description of 513 characters', breaks: ['description:string.pattern'], set: { description: long(513) } },
  { what: 'a description of two lines', breaks: ['description:string.pattern'], set: { description: 'one\ntwo' } },
  { what: 'a tier whose number is unknown', breaks: ['catalog_tier:enum.defined_only'], set: { catalogTier: 99 } },
  { what: 'a tier whose name is unknown', only: 'rest', set: { catalogTier: 'CATALOG_TIER_GOLD' }, fields: ['catalog_tier'] },
  { what: 'more than 20 bundles', breaks: ['bundles:repeated.max_items'], set: { bundles: copies(21, {}).map(() => 'base') } },
  { what: 'a bundle twice', breaks: ['bundles:repeated.unique'], set: { bundles: ['base', 'base'] } },
  { what: 'a bundle that is none', breaks: ['bundles[]:string.in'], set: { bundles: ['gold'] } },
  { what: 'more than 100 aliases', breaks: ['aliases:repeated.max_items'], set: { aliases: texts(101, (at) => `nginx:${at}`) } },
  { what: 'an alias twice', breaks: ['aliases:repeated.unique'], set: { aliases: ['nginx:1', 'nginx:1'] } },
  { what: 'an alias without a tag', breaks: ['aliases[]:string.pattern'], set: { aliases: ['library/nginx'] } },
  { what: 'an alias that is too long', breaks: ['aliases[]:string.max_len'], set: { aliases: [`${long(512)}:1`] } },
  { what: 'more than 1,000 active tags', breaks: ['active_tags:repeated.max_items'], set: { activeTags: texts(1001) } },
  { what: 'an active tag twice', breaks: ['active_tags:repeated.unique'], set: { activeTags: ['1', '1'] } },
  { what: 'an active tag that is no tag', breaks: ['active_tags[]:string.pattern'], set: { activeTags: ['-1'] } },
  { what: 'a number for a name', only: 'rest', set: { name: 42 }, fields: ['name'] },
  { what: 'a text for the bundles', only: 'rest', set: { bundles: 'base' }, fields: ['bundles'] },
]

const badSync: readonly BadField[] = [
  sync('a sync without a source', 'source:required', { google: 'principal' }),
  sync('a source that is too long', 'source:string.max_len', { source: long(513) }),
  sync('a google principal that is too long', 'google:string.max_len', { source: 'x', google: long(256) }),
  sync('an amazon principal that is too long', 'amazon:string.max_len', { source: 'x', amazon: long(256) }),
  sync('an azure principal that is too long', 'azure:string.max_len', { source: 'x', azure: long(256) }),
  sync('a source that is nowhere', ['source'], { source: 'f'.repeat(40) }),
  sync('a source that is no name', ['source'], { source: '../etc' }),
]

const repository = 'https://packages.example/main'

const badContents: readonly BadField[] = [
  contents('more than 1,000 packages', 'packages:repeated.max_items', { packages: texts(1001) }),
  contents('a package twice', 'packages:repeated.unique', { packages: ['curl', 'curl'] }),
  contents('a package that is too long', 'packages[]:string.max_len', { packages: [long(256)] }),
  contents('a package to be removed', 'packages[]:string.pattern', { packages: ['!curl'] }),
  contents('more than 20 repositories', 'runtime_repositories:repeated.max_items', { runtimeRepositories: texts(21, (at) => `${repository}/${at}`) }),
  contents('a repository twice', 'runtime_repositories:repeated.unique', { runtimeRepositories: [repository, repository] }),
  contents('a repository that is too long', 'runtime_repositories[]:string.max_len', { runtimeRepositories: [`${repository}/${long(2048)}`] }),
  contents('a repository over http', 'runtime_repositories[]:string.pattern', { runtimeRepositories: ['http://packages.example/main'] }),
  contents('more than 50 keys', 'runtime_keyring:repeated.max_items', { runtimeKeyring: texts(51).map((name) => ({ name, content: 'x' })) }),
  contents('a key without a name', 'runtime_keyring.name:required', { runtimeKeyring: [{ content: 'x' }] }),
  contents('a key whose name begins with a dot', 'runtime_keyring.name:string.pattern', { runtimeKeyring: [{ name: '.key', content: 'x' }] }),
  contents('a key whose name is a path', ['runtime_keyring.name'], { runtimeKeyring: [{ name: 'keys/one', content: 'x' }] }),
  contents('a key without content', 'runtime_keyring.content:required', { runtimeKeyring: [{ name: 'key' }] }),
  contents('a key over 512 KiB', 'runtime_keyring.content:string.max_bytes', { runtimeKeyring: [{ name: 'key', content: long(524_289) }] }),
]

const badMaps: readonly BadField[] = [
  overlay('more than 200 variables', 'environment:map.max_pairs', { environment: pairs(201) }),
  overlay('a variable that is reserved', 'environment{key}:cel', { environment: { TAPROOT_HOME: '/' } }),
  overlay('a variable without a name', 'environment{key}:string.min_len', { environment: { '': 'x' } }),
  overlay('a variable whose name is too long', 'environment{key}:string.max_len', { environment: { [long(256)]: 'x' } }),
  overlay('a variable that is too long', 'environment{value}:string.max_len', { environment: { HOME: long(4097) } }),
  overlay('more than 200 annotations', 'annotations:map.max_pairs', { annotations: pairs(201) }),
  overlay('an annotation of the platform', 'annotations{key}:cel', { annotations: { 'dev.taproot.owner': 'x' } }),
  overlay('an annotation of the image format', ['annotations'], { annotations: { 'org.opencontainers.image.title': 'x' } }),
  overlay('an annotation without a name', 'annotations{key}:string.min_len', { annotations: { '': 'x' } }),
  overlay('an annotation whose name is too long', 'annotations{key}:string.max_len', { annotations: { [long(256)]: 'x' } }),
  overlay('an annotation that is too long', 'annotations{value}:string.max_len', { annotations: { team: long(4097) } }),
]

const badAccounts: readonly BadField[] = [
  accounts('a user to run as that is too long', 'run_as:string.max_len', { runAs: long(256) }),
  accounts('more than 100 users', 'users:repeated.max_items', { users: copies(101, { username: 'app' }) }),
  accounts('a user without a name', 'users.username:required', { users: [{ uid: 1 }] }),
  accounts('a user whose name is too long', 'users.username:string.max_len', { users: [{ username: long(256) }] }),
  accounts('a user with a negative number', 'users.uid:int32.gte', { users: [{ username: 'app', uid: -1 }] }),
  accounts('a user in a group with a negative number', 'users.gid:int32.gte', { users: [{ username: 'app', gid: -1 }] }),
  accounts('a user in a group whose name is too long', 'users.group_name:string.max_len', { users: [{ username: 'app', groupName: long(256) }] }),
  accounts('a user whose shell is too long', 'users.shell:string.max_len', { users: [{ username: 'app', shell: long(256) }] }),
  accounts('a user whose home is too long', 'users.home_dir:string.max_len', { users: [{ username: 'app', homeDir: long(1025) }] }),
  accounts('more than 100 groups', 'groups:repeated.max_items', { groups: copies(101, { groupname: 'app' }) }),
  accounts('a group without a name', 'groups.groupname:required', { groups: [{ gid: 1 }] }),
  accounts('a group whose name is too long', 'groups.groupname:string.max_len', { groups: [{ groupname: long(256) }] }),
  accounts('a group with a negative number', 'groups.gid:int32.gte', { groups: [{ groupname: 'app', gid: -1 }] }),
  accounts('a group of more than 100', 'groups.members:repeated.max_items', { groups: [{ groupname: 'app', members: texts(101) }] }),
  accounts('a member without a name', 'groups.members[]:string.min_len', { groups: [{ groupname: 'app', members: [''] }] }),
  accounts('a member whose name is too long', 'groups.members[]:string.max_len', { groups: [{ groupname: 'app', members: [long(256)] }] }),
]

const badCertificates: readonly BadField[] = [
  certificates('more than 50 certificates', 'additional:repeated.max_items', { additional: texts(51).map((name) => ({ name, content: 'x' })) }),
  certificates('a certificate without a name', 'additional.name:required', { additional: [{ content: 'x' }] }),
  certificates('a certificate whose name is too long', 'additional.name:string.max_len', { additional: [{ name: long(256), content: 'x' }] }),
  certificates('a certificate without content', 'additional.content:required', { additional: [{ name: 'ca' }] }),
  certificates('a certificate over 50 KiB', 'additional.content:string.max_bytes', { additional: [{ name: 'ca', content: long(51_201) }] }),
  certificates('more than 50 providers', 'providers:repeated.max_items', { providers: texts(51) }),
  certificates('a provider without a name', 'providers[]:string.min_len', { providers: [''] }),
  certificates('a provider whose name is too long', 'providers[]:string.max_len', { providers: [long(256)] }),
]

const rule = { product: 'python' }
const rules = (what: string, breaks: string, ...productRules: JsonObject[]): BadField => ({ what, breaks: [`product_rules${breaks}`], set: { productRules } })

const badRules: readonly BadField[] = [
  rules('more than 50 product rules', ':repeated.max_items', ...copies(51, rule)),
  rules('a rule without a product', '.product:required', { tagGlob: '3.*' }),
  rules('a rule whose product has two lines', '.product:string.pattern', { product: 'py\nthon' }),
  rules('a rule whose product is too long', '.product:string.pattern', { product: long(256) }),
  rules('a rule for tags with two stars', '.tag_glob:string.pattern', { ...rule, tagGlob: '3.*-*' }),
  rules('a rule for tags by a regular expression', '.tag_glob:string.pattern', { ...rule, tagGlob: '(3.*)+' }),
  rules('a rule for tags that is too long', '.tag_glob:string.max_len', { ...rule, tagGlob: long(129) }),
  rules('a rule with a version with two stars', '.version:string.pattern', { ...rule, version: '*.*' }),
  rules('a rule with a version that is too long', '.version:string.max_len', { ...rule, version: long(129) }),
]

/** Every fault of a repo that the schema describes. Rules of keys, certificates and hosts are in test/conformance/spec/registry/registry-overlay.test.ts. */
export const badRepo: readonly BadField[] = [...badPlain, ...badSync, ...badContents, ...badMaps, ...badAccounts, ...badCertificates, ...badRules]

// The folders of src (docs/architecture.md): which may import which, and where each driver may be imported.

/** The layers, lowest first. A folder imports only folders of lower layers. Folders of one layer do not import each other, but for `siblings`. */
const order = [
  ['gen'],
  ['base'],
  ['store'],
  ['cache'],
  ['auth'],
  ['authz'],
  ['engine'],
  ['transport'],
  ['iam', 'registry', 'events', 'audit', 'catalogue', 'contents'],
  ['domains'],
  ['v1'],
  ['kubernetes'],
  ['config'],
  ['server'],
  ['cli'],
]

/** The domains. Other folders import them only through their index.ts. */
const domains = ['iam', 'registry', 'events', 'audit', 'catalogue', 'contents']

/** folder -> folders of its own layer that it may import. */
const siblings = { registry: ['iam'], audit: ['registry'], catalogue: ['registry'], contents: ['catalogue', 'registry'] }

/** packages (regular expressions on the module's name) -> the folders of src that may import them. */
const drivers = [
  { packages: ['node:sqlite'], folders: ['store/sqlite', 'audit', 'catalogue', 'contents/layers', 'contents/segments'] },
  { packages: ['koa', 'koa-body', '@types/koa'], folders: ['transport/http'] },
  { packages: ['@koa/router'], folders: ['transport/web'] },
  { packages: ['preact-render-to-string'], folders: ['transport/web'] },
  { packages: ['@grpc/grpc-js', '@grpc/reflection', 'grpc-health-check'], folders: ['transport/grpc', 'store/etcd'] },
  { packages: ['re2js', 'jose', 'openid-client'], folders: ['auth', 'iam/signin'] },
  { packages: ['undici'], folders: ['auth', 'registry/upstream/http', 'kubernetes/client'] },
  { packages: ['bcryptjs'], folders: ['cli'] },
  { packages: ['commander'], folders: ['cli'] },
  { packages: ['yaml'], folders: ['config', 'cli', 'catalogue/import', 'kubernetes/client'] },
  { packages: ['@renovatebot/pep440', 'semver', '@types/semver'], folders: ['base/versions'] },
  { packages: ['sax', '@types/sax'], folders: ['catalogue/import'] },
  { packages: ['ae-cvss-calculator'], folders: ['catalogue/exports'] },
  { packages: ['packageurl-js'], folders: ['catalogue/import', 'catalogue/exports', 'contents'] },
  { packages: ['tar', 'yauzl', '@types/yauzl'], folders: ['catalogue/import', 'contents/layers'] },
  { packages: ['ajv'], folders: ['config', 'cli'] },
  { packages: ['pino'], folders: ['server'] },
  { packages: ['prom-client'], folders: ['transport', 'server', 'config'] },
  { packages: ['@noble/curves', '@sigstore/bundle', '@sigstore/core', '@sigstore/protobuf-specs', '@sigstore/verify'], folders: ['registry/policies'] },
  { packages: ['lru-cache'], folders: ['base'] },
  {
    packages: ['api', 'context-async-hooks', 'exporter-trace-otlp-proto', 'resources', 'sdk-trace'].map((name) => `@opentelemetry/${name}`),
    folders: ['server/telemetry'],
  },
]

const escape = (text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')

const folders = order.flat()

const layerRules = order.flatMap((layer, at) =>
  layer.map((folder) => {
    const allowed = [folder, ...(siblings[folder] ?? []), ...order.slice(0, at).flat()]
    return {
      name: `layer-${folder}`,
      comment: `src/${folder} imports only ${allowed.map((name) => `src/${name}`).join(', ')} and packages`,
      severity: 'error',
      from: { path: `^src/${folder}/` },
      to: { path: '^(src|test|tools|bench|bin)/', pathNot: `^src/(${allowed.join('|')})/` },
    }
  }),
)

const domainRules = domains.map((domain) => ({
  name: `domain-${domain}`,
  comment: `other folders import src/${domain} only through src/${domain}/index.ts`,
  severity: 'error',
  from: { path: '^src/', pathNot: `^src/${domain}/` },
  to: { path: `^src/${domain}/`, pathNot: `^src/${domain}/index\\.ts$` },
}))

const driverRules = drivers.map(({ packages, folders: places }) => {
  const names = packages.map((name) => escape(name.replace(/^node:/, ''))).join('|')
  return {
    name: `driver-${packages[0]}`,
    comment: `${packages.join(', ')}: only in ${places.map((folder) => `src/${folder}`).join(', ')}`,
    severity: 'error',
    from: { path: '^src/', pathNot: `^src/(${places.join('|')})/` },
    // Once resolved, once as written (built-in modules, packages without an entry for this platform).
    to: { path: `(^|node_modules/)(node:)?(${names})(/|$)`, pathNot: '^src/' },
  }
})

module.exports = {
  forbidden: [
    ...layerRules,
    ...domainRules,
    ...driverRules,
    {
      name: 'known-layer',
      comment: 'a new folder of src needs its place in the table of layers above',
      severity: 'error',
      from: {},
      to: { path: '^src/', pathNot: `^src/(${folders.join('|')})/` },
    },
    {
      name: 'nothing-imports-tests',
      comment: 'src never imports tests, tools or benchmarks',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|tools|bench|bin)/' },
    },
    { name: 'no-cycles', comment: 'no import cycle, types included', severity: 'error', from: { pathNot: '^src/gen/' }, to: { circular: true } },
    {
      name: 'no-orphans',
      comment: 'a module that nothing imports and that imports nothing is dead',
      severity: 'error',
      from: { orphan: true, path: '^src/', pathNot: '^src/gen/|\\.d\\.ts$' },
      to: {},
    },
    { name: 'no-unresolved', comment: 'an import must resolve', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'no-dev-packages',
      comment: 'src imports only packages listed in dependencies',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/gen/' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], dependencyTypesNot: ['type-only'] },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '^tools/parts/[^/]+/' },
    tsConfig: { fileName: 'tsconfig.json' },
    tsPreCompilationDeps: true,
    detectProcessBuiltinModuleCalls: true,
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'require', 'node', 'default', 'types'], mainFields: ['main', 'types'] },
  },
}

// The layers (docs/architecture.md): which folder of src may import which, and where each driver may be imported.

/** layer -> the layers it may import besides itself. `cmd` is not listed: it may import everything, nothing may import it. */
const layers = {
  core: ['gen'],
  gen: [],
  store: ['core', 'gen'],
  snapshot: ['core', 'store', 'gen'],
  authn: ['core', 'store', 'gen'],
  authz: ['core', 'snapshot', 'gen'],
  resources: ['core', 'store', 'snapshot', 'authn', 'authz', 'gen'],
  api: ['core', 'store', 'snapshot', 'authn', 'authz', 'resources', 'gen'],
  registry: ['core', 'store', 'snapshot', 'authn', 'authz', 'resources', 'gen'],
  kube: ['core', 'store', 'snapshot', 'authn', 'authz', 'resources', 'gen'],
}

/** packages (regular expressions on the module's name) -> the folders of src that may import them. */
const drivers = [
  { packages: ['etcd3'], folders: ['store/etcd'] },
  { packages: ['node:sqlite'], folders: ['store/sqlite'] },
  { packages: ['koa', 'koa-body', '@types/koa'], folders: ['api/http'] },
  { packages: ['@grpc/grpc-js', '@grpc/reflection', 'grpc-health-check'], folders: ['api/grpc', 'store/etcd'] },
  { packages: ['re2js', 'jose', 'openid-client'], folders: ['authn'] },
  { packages: ['undici'], folders: ['authn', 'registry/upstream/http', 'kube/client'] },
  { packages: ['bcryptjs', 'commander', 'yaml', 'ajv', 'pino'], folders: ['cmd'] },
  { packages: ['@kubernetes/client-node'], folders: ['kube/client'] },
  { packages: ['prom-client'], folders: ['api', 'cmd'] },
]

const escape = (text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')

const layerRules = Object.entries(layers).map(([layer, allowed]) => ({
  name: `layer-${layer}`,
  comment: `src/${layer} imports only ${[layer, ...allowed].map((name) => `src/${name}`).join(', ')} and packages`,
  severity: 'error',
  from: { path: `^src/${layer}/` },
  to: { path: '^(src|test|tools|bench|bin)/', pathNot: `^src/(${[layer, ...allowed].join('|')})/` },
}))

const driverRules = drivers.map(({ packages, folders }) => {
  const names = packages.map((name) => escape(name.replace(/^node:/, ''))).join('|')
  return {
    name: `driver-${packages[0]}`,
    comment: `${packages.join(', ')}: only in ${folders.map((folder) => `src/${folder}`).join(', ')}`,
    severity: 'error',
    from: { path: '^src/', pathNot: `^src/(${folders.join('|')})/` },
    // Once resolved, once as written (built-in modules, packages without an entry for this platform).
    to: { path: `(^|node_modules/)(node:)?(${names})(/|$)`, pathNot: '^src/' },
  }
})

module.exports = {
  forbidden: [
    ...layerRules,
    ...driverRules,
    {
      name: 'known-layer',
      comment: 'a new folder of src needs its row in the layer table above',
      severity: 'error',
      from: {},
      to: { path: '^src/', pathNot: `^src/(cmd|${Object.keys(layers).join('|')})/` },
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

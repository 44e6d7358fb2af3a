import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import { format, resolveConfig } from 'prettier'
import { afterAll, describe, expect, test } from 'vitest'
import type { Role } from '../../src/config/config.ts'
import { settingsTable } from '../../src/config/describe-settings.ts'
import type { Environment } from '../../src/config/environment.ts'
import { ConfigError, loadConfig } from '../../src/config/load-config.ts'
import { maskConfig } from '../../src/config/mask-config.ts'
import { configJsonSchema } from '../../src/config/schema.ts'
import { settings } from '../../src/config/setting.ts'

const folder = mkdtempSync(join(tmpdir(), 'taproot-config-'))
afterAll(() => rmSync(folder, { recursive: true }))

interface Given {
  readonly yaml?: string
  readonly env?: Environment
  readonly role?: Role
}

let files = 0

function load({ yaml, env = {}, role = 'dev' }: Given) {
  if (yaml === undefined) return loadConfig({ env, role })
  files += 1
  const file = join(folder, `${files}.yaml`)
  writeFileSync(file, yaml)
  return loadConfig({ file, env, role })
}

/** Returns the errors of a configuration, with the path of its file replaced by `FILE`. */
function errorsOf(given: Given): readonly string[] {
  try {
    load(given)
  } catch (error) {
    if (error instanceof ConfigError) return error.errors.map((error) => error.replaceAll(/\S+\.yaml/g, 'FILE'))
    throw error
  }
  return []
}

const onEtcd = { TAPROOT_STORE_KIND: 'etcd', TAPROOT_STORE_ETCD_ENDPOINTS: 'http://127.0.0.1:2379', TAPROOT_ENCRYPTION_KEY_FILE: '/keys/kek' }

describe('defaults', () => {
  test('defaults of dev: loopback address, self-service root groups, data in ./.taproot, no rate limit', () => {
    const { config, warnings } = load({ role: 'dev' })
    expect(config).toMatchObject({
      baseUrl: 'http://localhost:8080',
      listen: '127.0.0.1',
      dataDir: './.taproot',
      selfService: { rootGroups: true },
      rateLimit: { enabled: false },
      store: { kind: 'sqlite', sqlite: { path: '.taproot/taproot.db' } },
    })
    expect(warnings).toEqual([])
  })

  test('defaults of api: all addresses, no self-service, a rate limit', () => {
    expect(load({ role: 'api' }).config).toMatchObject({
      listen: '0.0.0.0',
      api: { port: 8080 },
      ops: { port: 9090 },
      registry: { port: 5000, host: 'localhost:5000' },
      reads: 'linearizable',
      selfService: { rootGroups: false },
      rateLimit: { enabled: true },
      tokens: { audiences: ['http://localhost:8080', 'localhost:5000'] },
      compat: { namespaces: ['chainguard.platform'] },
    })
  })

  test.for([
    ['the API port', { TAPROOT_API_PORT: '8181' }, 'http://localhost:8181'],
    ['TLS', { TAPROOT_API_TLS_CERT_FILE: 'c', TAPROOT_API_TLS_KEY_FILE: 'k' }, 'https://localhost:8080'],
    ['a configured value', { TAPROOT_BASE_URL: 'https://platform.example.com' }, 'https://platform.example.com'],
  ] as const)('defaults of baseUrl follow %s', ([, env, baseUrl]) => {
    const { config } = load({ env })
    expect(config.baseUrl).toBe(baseUrl)
    expect(config.tokens.audiences[0]).toBe(baseUrl)
  })

  test.for([
    ['TLS on its port', { TAPROOT_REGISTRY_TLS_CERT_FILE: 'c', TAPROOT_REGISTRY_TLS_KEY_FILE: 'k' }, 'https'],
    ['an https baseUrl', { TAPROOT_BASE_URL: 'https://platform.example.com' }, 'https'],
    ['a configured value', { TAPROOT_BASE_URL: 'https://platform.example.com', TAPROOT_REGISTRY_SCHEME: 'http' }, 'http'],
    ['the absence of both', {}, 'http'],
  ] as const)("defaults of the registry's scheme follow %s", ([, env, scheme]) => {
    expect(load({ env }).config.registry.scheme).toBe(scheme)
  })

  test('defaults of dev with an upstream registry have no data folder for images', () => {
    expect(load({ env: { TAPROOT_REGISTRY_UPSTREAM_URL: 'https://registry.example' } }).config.registry.upstream).toEqual({
      url: 'https://registry.example',
      redirects: 'follow',
    })
  })

  test('defaults fill the rows of lists', () => {
    const feeds = [
      { name: 'site', source: '/mnt/advisories' },
      { name: 'pypa', source: 'https://feeds.example/all.zip', everyMinutes: 60 },
    ]
    const { config } = loadConfig({ file: undefined, env: { TAPROOT_CATALOGUES_FEEDS: JSON.stringify(feeds) }, role: 'dev' })
    expect(config.catalogues.feeds).toEqual([{ ...feeds[0], everyMinutes: 1440 }, feeds[1]])
  })

  test('defaults leave out sections without a value', () => {
    const { config } = load({})
    expect(config.api).not.toHaveProperty('tls')
    expect(config.registry).toEqual({
      blobCacheMegabytes: 256,
      catalog: true,
      port: 5000,
      host: 'localhost:5000',
      scheme: 'http',
      readContents: true,
      upstream: { directory: '.taproot/registry' },
      collect: { graceHours: 168 },
      lifecycle: { deprecate: false },
    })
    expect(load({ role: 'api' }).config.registry).not.toHaveProperty('upstream')
    expect(config.store.etcd).toEqual({ endpoints: [], prefix: '/taproot' })
  })
})

describe('the configuration file and environment variables', () => {
  test('a variable overrides the file, and the file overrides the default', () => {
    const { config } = load({ yaml: 'api: { port: 8001 }\nops: { port: 9001 }\n', env: { TAPROOT_API_PORT: '8002' } })
    expect(config).toMatchObject({ api: { port: 8002 }, ops: { port: 9001 }, registry: { port: 5000 } })
  })

  test('an empty file, an empty section and an empty variable are as if absent', () => {
    expect(load({ yaml: '' }).config).toEqual(load({}).config)
    expect(load({ yaml: 'api:\nstore:\n  sqlite:\n', env: { TAPROOT_API_PORT: '' } }).config).toEqual(load({}).config)
  })

  test('lists of strings are separated by commas or given as JSON, lists of objects are JSON', () => {
    const operators = [{ issuer: 'https://issuer.example.com', subject: 'ann' }]
    const env = {
      TAPROOT_STORE_ETCD_ENDPOINTS: 'http://127.0.0.1:2379, http://127.0.0.1:3379',
      TAPROOT_COMPAT_NAMESPACES: '[]',
      TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify(operators),
      TAPROOT_ISSUERS: '[{"issuer":"https://10.0.0.1","allowPrivate":true}]',
      TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false',
    }
    expect(load({ env }).config).toMatchObject({
      store: { etcd: { endpoints: ['http://127.0.0.1:2379', 'http://127.0.0.1:3379'] } },
      compat: { namespaces: [] },
      bootstrap: { operators },
      issuers: [{ issuer: 'https://10.0.0.1', allowPrivate: true }],
      selfService: { rootGroups: false },
    })
  })

  test('variables have the name of their key path', () => {
    const variables = new Map(settings.map(({ key, variable }) => [key, variable]))
    expect(variables.get('store.etcd.tls.caFile')).toBe('TAPROOT_STORE_ETCD_TLS_CA_FILE')
    expect(variables.get('registry.upstream.passwordFile')).toBe('TAPROOT_REGISTRY_UPSTREAM_PASSWORD_FILE')
    expect(variables.get('registry.publicOrganization')).toBe('TAPROOT_REGISTRY_PUBLIC_ORGANIZATION')
    expect(new Set(variables.values()).size).toBe(settings.length)
  })
})

describe('warnings about variables', () => {
  test.for([
    ['TAPROOT_STORE_KIN', 'sqlite', 'TAPROOT_STORE_KIN: not a setting; did you mean TAPROOT_STORE_KIND?'],
    ['TAPROOT_QQQQQQQQQQQQQQQQQQQQQQQQQQ', '1', 'TAPROOT_QQQQQQQQQQQQQQQQQQQQQQQQQQ: not a setting'],
    [
      'TAPROOT_API_SERVICE_HOST',
      '10.0.0.1',
      'TAPROOT_API_SERVICE_HOST: not a setting; Kubernetes sets it for a Service of that name: set enableServiceLinks: false in the pod spec',
    ],
    [
      'TAPROOT_PORT',
      'tcp://10.0.0.1:8080',
      'TAPROOT_PORT: not a setting; Kubernetes sets it for a Service of that name: set enableServiceLinks: false in the pod spec',
    ],
  ] as const)('for %s=%s', ([name, value, warning]) => {
    expect(load({ env: { [name]: value } }).warnings).toEqual([warning])
  })

  test('warnings about variables ignore variables of other programs', () => {
    expect(load({ env: { PATH: '/bin', TAPROOTS: 'x' } }).warnings).toEqual([])
  })
})

describe('configuration errors', () => {
  const rows: readonly (readonly [string, Given, readonly string[]])[] = [
    [
      'a Service variable of Kubernetes in place of a port',
      { env: { TAPROOT_API_PORT: 'tcp://10.96.0.1:8080' } },
      [
        'TAPROOT_API_PORT: expected a whole number from 1 to 65535, got "tcp://10.96.0.1:8080"; Kubernetes sets it for a Service of that name: set enableServiceLinks: false in the pod spec',
      ],
    ],
    ['an unknown key near a known one', { yaml: 'api: { prot: 1 }' }, ['FILE: api.prot: unknown key; did you mean api.port?']],
    ['an unknown key that belongs elsewhere', { yaml: 'endpoints: [a]' }, ['FILE: endpoints: unknown key; did you mean store.etcd.endpoints?']],
    ['an unknown key unlike any other', { yaml: 'qqqqqqqqqqqqqqqqqqq: 1' }, ['FILE: qqqqqqqqqqqqqqqqqqq: unknown key']],
    ['a key that objects inherit', { yaml: '__proto__: { port: 1 }' }, ['FILE: __proto__: unknown key']],
    ['a number as text in the file', { yaml: 'api: { port: "8080" }' }, ['FILE: api.port: expected a whole number from 1 to 65535, got "8080"']],
    ['a plain value for a section', { yaml: 'ops: 9090' }, ['FILE: ops: expected a section with the keys port, got 9090']],
    ['a port out of bounds', { env: { TAPROOT_OPS_PORT: '0' } }, ['TAPROOT_OPS_PORT: expected a whole number from 1 to 65535, got 0']],
    ['a word that is not one of the choices', { env: { TAPROOT_STORE_KIND: 'etc' } }, ['TAPROOT_STORE_KIND: expected one of sqlite, etcd, got "etc"']],
    ['a flag that is not a boolean', { env: { TAPROOT_RATE_LIMIT_ENABLED: 'yes' } }, ['TAPROOT_RATE_LIMIT_ENABLED: expected true or false, got "yes"']],
    [
      'a list of objects that is not valid JSON',
      { env: { TAPROOT_BOOTSTRAP_OPERATORS: 'ann' } },
      ['TAPROOT_BOOTSTRAP_OPERATORS: expected a list of {issuer, subject} as JSON, got "ann"'],
    ],
    [
      'an item with a missing and an unknown key',
      { yaml: 'bootstrap: { operators: [{ isuer: "https://a.example", issuer: "https://b.example" }] }' },
      [
        'FILE: bootstrap.operators[0].subject is missing: expected text that is not empty',
        'FILE: bootstrap.operators[0].isuer: unknown key; did you mean issuer?',
      ],
    ],
    [
      'a URL of another scheme, credentials not shown',
      { env: { TAPROOT_REGISTRY_UPSTREAM_URL: 'ftp://ann:secret@files.example' } },
      ['TAPROOT_REGISTRY_UPSTREAM_URL: expected an http:// or https:// URL, got "ftp://***@files.example"'],
    ],
    [
      'a base URL with a slash at the end',
      { yaml: 'baseUrl: https://a.example/' },
      [
        'FILE: baseUrl: expected an http:// or https:// URL without user, query, fragment and slash at the end, e.g. https://platform.example.com, got "https://a.example/"',
      ],
    ],
    [
      'role api on etcd without endpoints and key',
      { role: 'api', env: { TAPROOT_STORE_KIND: 'etcd' } },
      [
        'store.etcd.endpoints (TAPROOT_STORE_ETCD_ENDPOINTS) is missing: expected a list, each item an http:// or https:// URL, because store.kind is etcd',
        'encryption.keyFile (TAPROOT_ENCRYPTION_KEY_FILE) is missing: expected text that is not empty, because store.kind is etcd',
      ],
    ],
    [
      'a certificate without its key',
      { yaml: 'api: { tls: { certFile: c } }' },
      ['FILE: api.tls.keyFile (TAPROOT_API_TLS_KEY_FILE) is missing: expected text that is not empty'],
    ],
    [
      'a user without a password',
      { role: 'api', env: { ...onEtcd, TAPROOT_STORE_ETCD_USERNAME: 'root' } },
      ['store.etcd.passwordFile (TAPROOT_STORE_ETCD_PASSWORD_FILE) is missing: expected text that is not empty, because store.etcd.username is set'],
    ],
    [
      'the registry host without an upstream',
      { role: 'registry', env: onEtcd },
      ['registry.upstream.url (TAPROOT_REGISTRY_UPSTREAM_URL) is missing: expected an http:// or https:// URL, because the registry host needs an upstream'],
    ],
    [
      'two upstreams',
      { yaml: 'registry: { upstream: { url: "https://registry.example", directory: /data } }' },
      ['registry.upstream.directory (TAPROOT_REGISTRY_UPSTREAM_DIRECTORY): expected no folder, because registry.upstream.url is set'],
    ],
    ...['prefix: x', 'caFile: /ca.crt', 'redirects: pass'].map((setting): readonly [string, Given, readonly string[]] => [
      `settings of a registry that is not there: ${setting}`,
      { yaml: `registry: { upstream: { ${setting} } }` },
      [
        `registry.upstream.url (TAPROOT_REGISTRY_UPSTREAM_URL) is missing: expected an http:// or https:// URL, because registry.upstream.${setting.split(':')[0]} is set`,
      ],
    ]),
    [
      'the registry host on etcd without a key',
      { role: 'registry', env: { ...onEtcd, TAPROOT_ENCRYPTION_KEY_FILE: '', TAPROOT_REGISTRY_UPSTREAM_URL: 'https://registry.example' } },
      ['encryption.keyFile (TAPROOT_ENCRYPTION_KEY_FILE) is missing: expected text that is not empty, because store.kind is etcd'],
    ],
    [
      'a document that is listed twice',
      { yaml: 'terms: [{ id: a, label: A, url: "https://a.example" }, { id: a, label: B, url: "https://b.example" }]' },
      ['terms (TAPROOT_TERMS): a is listed twice'],
    ],
    [
      'scanners of images that are not read, and without a credential',
      {
        yaml: `{ registry: { readContents: false }, scanners: [{ name: a, url: "https://a.example", identity: "${'0'.repeat(40)}", authorization: basic }] }`,
      },
      [
        'scanners (TAPROOT_SCANNERS): expected none, because registry.readContents is false: images are scanned once they are read',
        'scanners (TAPROOT_SCANNERS): a: tokenFile is missing, because authorization is set',
      ],
    ],
    [
      'scanners for a worker without content',
      {
        role: 'worker',
        env: onEtcd,
        yaml: `{ scanners: [{ name: a, url: "https://a.example", identity: "${'0'.repeat(40)}" }] }`,
      },
      ['registry.upstream.url (TAPROOT_REGISTRY_UPSTREAM_URL) is missing: expected an http:// or https:// URL, because scanners is set'],
    ],
    [
      'a provider of Google without its pool',
      { env: { TAPROOT_ACCOUNT_CHECKS_GOOGLE_PROVIDER: 'taproot' } },
      ['TAPROOT_ACCOUNT_CHECKS_GOOGLE_PROVIDER: expected a pool and a provider, e.g. taproot/taproot, got "taproot"'],
    ],
    [
      'the controller on the embedded store',
      { role: 'controller', env: { TAPROOT_KUBERNETES_ISSUER: 'https://cluster.example' } },
      ['store.kind (TAPROOT_STORE_KIND): expected etcd, got sqlite: only one process can use the embedded store, and the controller is another one'],
    ],
    [
      'two settings with one port',
      { env: { TAPROOT_OPS_PORT: '8080' } },
      ['ops.port (TAPROOT_OPS_PORT): expected a port that no other setting uses, got 8080, the port of api.port'],
    ],
    ['a list in place of a file name', { yaml: '[1]' }, ['FILE: expected a mapping of keys, e.g. "baseUrl: https://platform.example.com"']],
  ]
  test.for(rows)('%s', ([, given, errors]) => {
    expect(errorsOf(given)).toEqual(errors)
  })

  test('configuration errors are all reported at once, from file and environment', () => {
    const errors = errorsOf({ yaml: 'apy: {}\nlog: { level: loud }\n', env: { TAPROOT_OPS_PORT: 'x', TAPROOT_STORE_KIND: 'etcd' }, role: 'api' })
    expect(errors.map((error) => error.split(/[ (]/, 2).join(' ')).toSorted()).toEqual(
      ['FILE: apy:', 'FILE: log.level:', 'TAPROOT_OPS_PORT: expected', 'encryption.keyFile ', 'store.etcd.endpoints '].toSorted(),
    )
    for (const error of errors) expect(error).not.toContain('\n')
  })

  test('configuration errors of a file that is not YAML name the line', () => {
    expect(errorsOf({ yaml: 'api:\n  port: 1\n port: 2\n' })[0]).toMatch(/^FILE: line 3: not YAML: /)
  })

  test('configuration errors include a key that is given twice', () => {
    expect(errorsOf({ yaml: 'reads: bounded\nreads: bounded\n' })[0]).toMatch(/^FILE: line 2: not YAML: /)
  })

  test('configuration errors report a missing file as one error', () => {
    expect(() => loadConfig({ file: join(folder, 'none.yaml'), env: {}, role: 'api' })).toThrow(/none\.yaml: can't be read: no such file or directory$/)
  })
})

test('masking hides the credentials of URLs and keeps everything else', () => {
  const { config } = load({
    env: { TAPROOT_REGISTRY_UPSTREAM_URL: 'https://ann:secret@registry.example:5000/x', TAPROOT_STORE_ETCD_ENDPOINTS: 'http://root:pw@10.0.0.1:2379' },
  })
  const masked = maskConfig(config)
  expect(masked.registry.upstream).toEqual({ url: 'https://***@registry.example:5000/x', redirects: 'follow' })
  expect(masked.store.etcd.endpoints).toEqual(['http://***@10.0.0.1:2379'])
  expect({ ...masked, registry: config.registry, store: config.store }).toEqual(config)
})

test('the configuration schema is a valid JSON Schema', () => {
  // Servers do not check it at each start.
  const ajv = new Ajv()
  expect(ajv.validateSchema(configJsonSchema()), ajv.errorsText()).toBe(true)
  expect(ajv.validateSchema({ ...configJsonSchema(), required: 'baseUrl' })).toBe(false)
})

describe('generated documents (`npx vitest run test/config/config.test.ts -u` rewrites them)', () => {
  test('docs/config.schema.json equals the configuration schema', async () => {
    await expect(await formatted(JSON.stringify(configJsonSchema()), 'config.schema.json')).toMatchFileSnapshot('../../docs/config.schema.json')
  })

  test('docs/configuration.md has every setting', async () => {
    const page = new URL('../../docs/configuration.md', import.meta.url)
    const current = readFileSync(page, 'utf8')
    const renewed = current.replace(
      /(<!-- settings -->\n)[^]*(\n<!-- end of settings -->)/,
      (_, start: string, end: string) => `${start}\n${settingsTable()}\n${end}`,
    )
    await expect(await formatted(renewed, 'configuration.md')).toMatchFileSnapshot('../../docs/configuration.md')
    expect(renewed).toContain(settings.at(-1)?.variable)
  })
})

async function formatted(content: string, name: string): Promise<string> {
  const filepath = new URL(`../../docs/${name}`, import.meta.url).pathname
  return format(content, { ...(await resolveConfig(filepath)), filepath })
}

import { afterAll, beforeAll, expect, test } from 'vitest'
import packageJson from '../../../package.json' with { type: 'json' }
import { requirePart } from '../../support/parts/require-part.ts'
import { describeWithCluster, startCluster, type Cluster } from './harness/cluster.ts'
import { leftOf } from './harness/remains/left-of.ts'
import { orReport } from './harness/or-report.ts'
import { pushProgramImage } from './harness/program-image.ts'
import { buildTaprootImage } from './harness/taproot-image.ts'

const ports = { api: 8080, ops: 9090, registry: 5000 }
const { version } = packageJson
const labels = { app: 'taproot-dev' }

describeWithCluster('a one-node cluster', () => {
  let cluster: Cluster
  let image = ''
  beforeAll(async () => {
    const { archive, repository, tag } = await buildTaprootImage()
    cluster = await startCluster()
    await cluster.importImage(archive, repository)
    image = `${repository}:${tag}`
  })
  afterAll(() => cluster?.stop())

  /** Runs the command of the image, or a script on its Node, to its end. Returns the output. */
  const runToEnd = async (name: string, container: object, more: object = {}): Promise<string> => {
    await cluster.kubectl(
      ['apply', '-f', '-'],
      JSON.stringify({ apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec: { ...podSpec(image, container), ...more } }),
    )
    await orReport(cluster, () => cluster.kubectl(['wait', `pod/${name}`, '--for=jsonpath={.status.phase}=Succeeded', '--timeout=120s']))
    return cluster.kubectl(['logs', name])
  }
  const script = (...lines: string[]): object => ({ command: ['node', '--input-type=module', '--eval', lines.join('\n')] })

  test('a one-node cluster runs the command in an unprivileged pod with a read-only root file system', async () => {
    expect(await runToEnd('version', { args: ['--version'] })).toBe(`${version}\n`)
    expect(await runToEnd('help', {})).toContain('Usage: taproot')
    const write = script(
      "import { writeFileSync } from 'node:fs'",
      "try { writeFileSync('/opt/taproot/x', '') } catch (error) { console.log(error.code, process.getuid()) }",
    )
    expect(await runToEnd('write', write)).toBe('EROFS 65532\n')
  })

  // docs/audit.md
  test('a one-node cluster runs commands that leave audit events, as a user without a name', async () => {
    const audited = script(
      "import { readFileSync } from 'node:fs'",
      "import { auditedCommand } from '/opt/taproot/src/server/audit/audited-command.ts'",
      "import { loadConfig } from '/opt/taproot/src/config/load-config.ts'",
      "const { config } = loadConfig({ env: { TAPROOT_DATA_DIR: '/var/lib/taproot' }, role: 'dev' })",
      'const { error } = console',
      "const command = { config, role: 'dev', log: { debug: error, info: error, warn: error, error }, method: 'example' }",
      "console.log(await auditedCommand(command, async () => 'done'))",
      'console.log(...readFileSync(\'/var/lib/taproot/taproot.log\', \'utf8\').match(/"actorSubject":"[^"]*"/g))',
    )
    expect(await runToEnd('audited', audited)).toBe('done\n"actorSubject":"65532"\n')
  })

  test('a one-node cluster serves the command by the name of a Service, to pods and to the host', async () => {
    const container = {
      args: ['dev'],
      env: [{ name: 'TAPROOT_LISTEN', value: '0.0.0.0' }],
      readinessProbe: { httpGet: { path: '/readyz', port: ports.ops }, periodSeconds: 1 },
    }
    const deployment = { replicas: 1, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: podSpec(image, container) } }
    const service = { selector: labels, ports: (['api', 'ops'] as const).map((name) => ({ name, port: ports[name] })) }
    const items = [
      { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'platform' }, spec: deployment },
      { apiVersion: 'v1', kind: 'Service', metadata: { name: 'platform' }, spec: service },
    ]
    await cluster.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
    await orReport(cluster, () => cluster.kubectl(['rollout', 'status', 'deployment/platform', '--timeout=120s']))
    const asked = script(
      "for (const name of ['platform', 'platform.default', 'platform.default.svc.cluster.local'])",
      `  console.log(name, (await fetch(\`http://\${name}:${ports.ops}/healthz\`)).status)`,
    )
    expect(await runToEnd('asks', asked)).toBe('platform 200\nplatform.default 200\nplatform.default.svc.cluster.local 200\n')
    const response = await fetch(`http://${await cluster.resolve('platform.default')}:${ports.api}/.well-known/openid-configuration`)
    expect(response.status).toBe(200)
    expect(await cluster.kubectl(['exec', 'deployment/platform', '--', 'taproot', '--version'])).toBe(`${version}\n`)
  })

  test('a one-node cluster gives pods a token and a certificate for the API server and its name', async () => {
    const asked = script(
      "import { readFileSync } from 'node:fs'",
      "const token = readFileSync('/var/run/secrets/kubernetes.io/serviceaccount/token', 'utf8')",
      "const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }",
      "const body = JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' })",
      "const answer = await fetch('https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews', { method: 'POST', headers, body })",
      'console.log((await answer.json()).status.userInfo.username)',
    )
    const trust = { env: [{ name: 'NODE_EXTRA_CA_CERTS', value: '/var/run/secrets/kubernetes.io/serviceaccount/ca.crt' }] }
    expect(await runToEnd('whoami', { ...asked, ...trust })).toBe('system:serviceaccount:default:default\n')
  })

  test('a one-node cluster answers look-ups of unknown names at once', async () => {
    const asked = script("import { lookup } from 'node:dns/promises'", "console.log(await lookup('registry.example.com').catch((error) => error.code))")
    expect(await runToEnd('elsewhere', asked)).toBe('ENOTFOUND\n')
  })

  test('a one-node cluster keeps files that a pod writes to a claimed volume', async () => {
    await cluster.addVolumes(2)
    const spec = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } }
    await cluster.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: { name: 'kept' }, spec }))
    const volumes = [{ name: 'data', persistentVolumeClaim: { claimName: 'kept' } }]
    await runToEnd('writes', script("import { writeFileSync } from 'node:fs'", "writeFileSync('kept', 'here')"), { volumes })
    expect(await runToEnd('reads', script("import { readFileSync } from 'node:fs'", "console.log(readFileSync('kept', 'utf8'))"), { volumes })).toBe('here\n')
  })

  test('a one-node cluster pulls an image from its own registry by its own name', async () => {
    await cluster.importPrograms({ name: 'taproot.test/registry:1', programs: [requirePart('registry')] })
    await cluster.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: registryObjects() }))
    await orReport(cluster, () => cluster.kubectl(['wait', 'pod/registry', '--for=condition=Ready', '--timeout=120s']))
    const address = `${await cluster.resolve('registry.default')}:${ports.registry}`
    await pushProgramImage({ name: `${address}/programs/pause:1`, programs: [requirePart('pause')] })
    await cluster.addRegistry('registry.test', `http://${address}`)
    await cluster.kubectl(['run', 'pulled', '--image=registry.test/programs/pause:1', '--restart=Never', '--image-pull-policy=Always'])
    await orReport(cluster, () => cluster.kubectl(['wait', 'pod/pulled', '--for=condition=Ready', '--timeout=120s']))
  })

  test('a one-node cluster works with helm, and has no release at first', async () => {
    expect(JSON.parse(await cluster.helm(['list', '--all-namespaces', '--output', 'json']))).toEqual([])
  })

  test('a one-node cluster removes everything when it is stopped with running pods', async () => {
    await cluster.stop()
    expect(await leftOf(cluster.place)).toEqual([])
  })

  test('a one-node cluster removes everything when one part fails to start', async () => {
    await expect(startCluster({ kubeletFlags: { 'no-such-flag': 'x' } })).rejects.toThrow('unknown flag: --no-such-flag')
    expect(await leftOf(cluster.place)).toEqual([])
  })
})

/** Returns a pod like those of the chart: without rights, with one writable folder for data. */
function podSpec(image: string, container: object): object {
  const securityContext = { readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } }
  const volumeMounts = [{ name: 'data', mountPath: '/var/lib/taproot' }]
  return {
    restartPolicy: 'command' in container || !('readinessProbe' in container) ? 'Never' : 'Always',
    terminationGracePeriodSeconds: 5,
    enableServiceLinks: false,
    securityContext: { runAsNonRoot: true, fsGroup: 65532, seccompProfile: { type: 'RuntimeDefault' } },
    containers: [{ name: 'taproot', image, imagePullPolicy: 'Never', securityContext, volumeMounts, ...container }],
    volumes: [{ name: 'data', emptyDir: {} }],
  }
}

/** Returns the objects of a CNCF distribution registry without persistent storage. */
function registryObjects(): object[] {
  const metadata = { name: 'registry', labels: { app: 'registry' } }
  const configuration = { version: 0.1, storage: { inmemory: {} }, http: { addr: `:${ports.registry}` } }
  const container = {
    name: 'registry',
    image: 'taproot.test/registry:1',
    imagePullPolicy: 'Never',
    args: ['serve', '/etc/registry/config.json'],
    readinessProbe: { httpGet: { path: '/v2/', port: ports.registry }, periodSeconds: 1 },
    volumeMounts: [{ name: 'configuration', mountPath: '/etc/registry' }],
  }
  return [
    { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { 'config.json': JSON.stringify(configuration) } },
    { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [container], volumes: [{ name: 'configuration', configMap: { name: 'registry' } }] } },
    { apiVersion: 'v1', kind: 'Service', metadata, spec: { selector: metadata.labels, ports: [{ port: ports.registry }] } },
  ]
}

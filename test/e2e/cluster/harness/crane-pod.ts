import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from './command.ts'

const namespace = 'acme'
const secret = 'crane'

/** The content of the only file in the layer. */
export const layerContent = 'content of the one file of the one layer'

/** Returns the Secret of crane pods: their login at the host (`auth` is `user:password` in base64), and a layer to push. */
export async function craneSecret(host: string, auth: string): Promise<object> {
  const home = await mkdtemp(join(tmpdir(), 'taproot-crane-pod-'))
  try {
    await writeFile(join(home, 'content'), layerContent)
    await run('tar', ['--create', `--file=${join(home, 'layer.tar')}`, `--directory=${home}`, 'content'])
    const config = { auths: { [host]: { auth } } }
    const data = { 'layer.tar': (await readFile(join(home, 'layer.tar'))).toString('base64') }
    return { apiVersion: 'v1', kind: 'Secret', metadata: { name: secret, namespace }, data, stringData: { 'config.json': JSON.stringify(config) } }
  } finally {
    await rm(home, { recursive: true })
  }
}

/** Returns a pod that runs crane to its end, with the Secret in `/crane`. It reaches the registry by the cluster's names. */
export function cranePod(name: string, args: readonly string[]): object {
  const container = {
    name: 'crane',
    image: 'taproot.test/crane:1',
    imagePullPolicy: 'Never',
    args: ['--insecure', ...args],
    env: [{ name: 'DOCKER_CONFIG', value: '/crane' }],
    volumeMounts: [{ name: 'crane', mountPath: '/crane', readOnly: true }],
  }
  const spec = {
    restartPolicy: 'Never',
    automountServiceAccountToken: false,
    tolerations: [{ operator: 'Exists' }],
    containers: [container],
    volumes: [{ name: 'crane', secret: { secretName: secret } }],
  }
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace }, spec }
}

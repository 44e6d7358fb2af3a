import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { trustedUid } from '../../../../src/base/uid.ts'
import { makeImageWorld, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { runClient } from '../../../support/parts/run-client.ts'
import { makeMember, ok, type TestServer } from '../../../support/test-server.ts'
import type { TestManifest } from '../../oci/oci-client.ts'

/** A pair of keys of cosign. */
export interface CosignKeys {
  /** The file of the private key, in the home of cosign. */
  readonly file: string
  /** The public key in PEM form. */
  readonly pem: string
}

/** How cosign stores what it makes, and its options for that. */
export const layouts = [
  ['a bundle', []],
  ['a tag', ['--new-bundle-format=false']],
] as const
/** Options for a registry without TLS. */
export const plainHttp = ['--allow-http-registry', '--allow-insecure-registry'] as const
/** Options of a signature by a key that no log has. */
export const offline = ['--use-signing-config=false', '--tlog-upload=false', '--yes', ...plainHttp] as const

/** The program cosign with a home of its own. */
export class Cosign {
  readonly home: string

  private constructor(home: string) {
    this.home = home
  }

  static async start(): Promise<Cosign> {
    return new Cosign(await mkdtemp(join(tmpdir(), 'taproot-cosign-')))
  }

  stop(): Promise<void> {
    return rm(this.home, { recursive: true, force: true })
  }

  /** Runs cosign in its home. Throws with its output if it fails. */
  async run(
    args: readonly string[],
    { stdin = '', env = {} }: { readonly stdin?: string; readonly env?: Readonly<Record<string, string>> } = {},
  ): Promise<void> {
    const own = { HOME: this.home, DOCKER_CONFIG: this.home, COSIGN_PASSWORD: '', ...env }
    const { code, stdout, stderr } = await runClient('cosign', args, { cwd: this.home, env: own, stdin, timeoutMs: 120_000, own: () => ({}) })
    if (code !== 0) throw new Error(`cosign ${args.join(' ')} ended with ${code ?? 'a signal'}\n${stdout}\n${stderr}`)
  }

  /** Writes a file into the home. Resolves with its name. */
  async write(name: string, content: unknown): Promise<string> {
    await writeFile(join(this.home, name), typeof content === 'string' ? content : JSON.stringify(content))
    return name
  }

  /** Makes a key pair, or takes a private key in PEM form. */
  async keyPair(name: string, key?: string): Promise<CosignKeys> {
    if (key === undefined) await this.run(['generate-key-pair', '--output-key-prefix', name])
    else await this.run(['import-key-pair', '--key', await this.write(`${name}.pem`, key), '--output-key-prefix', name, '--yes'])
    return { file: `${name}.key`, pem: await readFile(join(this.home, `${name}.pub`), 'utf8') }
  }

  /** Makes a repo in an organisation whose owner signs in with cosign. */
  async makeWorld(server: TestServer): Promise<ImageWorld> {
    const world = await makeImageWorld(server)
    const { host } = server.config.registry
    const act = { issuer: 'https://issuer.example', subject: 'owner', audience: host }
    const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(world.owner), audiences: [host], act, restrictions: {} })
    await this.run(['login', host, '-u', '_token', '--password-stdin'], { stdin: token })
    return world
  }
}

/** The name of an image for cosign. */
export function nameOf({ server, path }: ImageWorld, { digest }: TestManifest): string {
  return `${server.config.registry.host}/${path}@${digest}`
}

/** Pulls as one who may not push. Resolves with the answer's status and body. */
export async function pull(world: ImageWorld, reference: string): Promise<{ readonly status: number; readonly text: string }> {
  const { uid: owner } = await makeMember(world.server, world.group, { role: 'registry.pull' })
  const { status, body } = await withRegistry({ ...world, owner }, (client) => client.send('GET', `/v2/${world.path}/manifests/${reference}`))
  return { status, text: body.toString() }
}

/** Pulls as one who may not push. Resolves with the status. */
export async function statusOf(world: ImageWorld, reference: string): Promise<number> {
  return (await pull(world, reference)).status
}

/** Creates, or changes, a policy that refuses images without such a signature. Resolves with its uid. */
export async function requireSignature(world: ImageWorld, requirement: JsonObject, uid?: string): Promise<string> {
  const rules = [{ requireSignature: requirement, mode: 'ENFORCE', onUnknown: 'DENY' }]
  const [rpc, request]: [string, JsonObject] =
    uid === undefined
      ? ['CreatePullPolicy', { parent: world.group, pullPolicy: { name: 'signed', rules } }]
      : ['UpdatePullPolicy', { pullPolicy: { uid, rules }, updateMask: 'rules' }]
  return String(ok(await world.server.rest.call(rpc, request, { token: world.token }))['uid'])
}

import type { Random } from '../../core/runtime.ts'
import type { KubeApi } from '../port/kube-api.ts'

/**
 * Where the API server is and who we are there:
 * - `service-account`: in a pod: `directory` holds `token` (read again as it rotates) and `ca.crt`
 * - `kubeconfig`: its current context, or the one named
 * - `token`: said outright; `ca` is PEM
 */
export type KubeEndpoint =
  | { readonly from: 'service-account'; readonly host: string; readonly port: string; readonly directory: string }
  | { readonly from: 'kubeconfig'; readonly file: string; readonly context?: string }
  | { readonly from: 'token'; readonly server: string; readonly ca: string; readonly token: string }

/** What a client needs. */
export interface KubeClientOptions {
  readonly endpoint: KubeEndpoint
  /** How this program names itself, as in `taproot-controller/1.2.3`. */
  readonly userAgent: string
  readonly random: Random
  /** How many calls are begun: `perSecond` (50) on average, `burst` (100) at once. Further ones wait their turn. */
  readonly rate?: { readonly perSecond: number; readonly burst: number }
  /** How long a call that is no watch may take, in milliseconds; 30 s where absent. */
  readonly callMs?: number
  /** How long a watch may tell nothing, not even a bookmark, before it counts as broken, in milliseconds; 3 min where absent. */
  readonly silenceMs?: number
}

/** A client of one API server. */
export interface KubeClient extends KubeApi {
  /** Ends all calls and connections. */
  close(): Promise<void>
}

/** Builds a client; connects to nothing before its first call. Throws where the endpoint can't be read. */
export declare function createKubeClient(options: KubeClientOptions): KubeClient

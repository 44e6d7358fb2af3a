import { ChannelCredentials } from '@grpc/grpc-js'
import { checkServerIdentity as verifyIdentity, type PeerCertificate } from 'node:tls'
import type { EtcdTls } from './unary-session.ts'

type CreateConnector = ChannelCredentials['_createSecureConnector']

/** TLS to one address with the certificates of the moment: gRPC's own are those of when the channel was made, also where it connects again. */
export class TlsCredentials extends ChannelCredentials {
  readonly #address: string
  readonly #tls: (() => EtcdTls) | undefined

  /** `tls` is asked for at each connection. */
  constructor(address: string, tls: (() => EtcdTls) | undefined) {
    super()
    this.#address = address
    this.#tls = tls
  }

  override _isSecure(): boolean {
    return true
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other
  }

  override _createSecureConnector(...target: Parameters<CreateConnector>): ReturnType<CreateConnector> {
    const connector = (): ReturnType<CreateConnector> => this.#ofNow()._createSecureConnector(...target)
    const first = connector()
    return {
      connect: (socket) => connector().connect(socket),
      waitForReady: () => first.waitForReady(),
      getCallCredentials: () => first.getCallCredentials(),
      destroy: () => first.destroy(),
    }
  }

  #ofNow(): ChannelCredentials {
    // Against the address itself, whatever name was sent.
    const checkServerIdentity = (_name: string, certificate: PeerCertificate): Error | undefined => verifyIdentity(this.#address, certificate)
    const { ca = null, key = null, cert = null } = this.#tls?.() ?? {}
    return ChannelCredentials.createSsl(ca, key, cert, { checkServerIdentity })
  }
}

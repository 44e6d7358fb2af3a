import type { HttpAnswer } from '../../../transport/http/http-context.ts'
import { pageAnswer } from '../../../transport/web/page.js'

const title = 'Sign in'

/** Returns a page with one paragraph for each text. */
export function messagePage(status: number, ...texts: readonly string[]): HttpAnswer {
  return pageAnswer(
    { status, title },
    texts.map((text) => <p>{text}</p>),
  )
}

/** The content of the confirmation page. */
export interface Confirmation {
  /** The code that the other device shows. */
  readonly code: string
  /** Names and values that describe the requested tokens. */
  readonly facts: readonly (readonly [string, string])[]
  /** The URL of the form's target. */
  readonly action: string
  /** The sealed sign-in, which comes back with the form. */
  readonly request: string
  readonly cookie: string
}

/** Asks whether the person started the sign-in of another device. Without it, an attacker gets the tokens of each person who opens a link (RFC 8628, 5.4). */
export function confirmPage({ code, facts, action, request, cookie }: Confirmation): HttpAnswer {
  return pageAnswer(
    { status: 200, title, headers: { 'Set-Cookie': cookie } },
    <>
      <p>Another device wants to sign in as you. Continue only if you started this yourself, a moment ago, and the device shows this code:</p>
      <p>
        <strong>{code}</strong>
      </p>
      <dl>
        {facts.map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
      </dl>
      <p>If another person sent you this link, they want to act in your name. Do not continue.</p>
      <form method="post" action={action}>
        <input type="hidden" name="request" value={request} />
        <button name="answer" value="yes">
          I started this: sign in
        </button>{' '}
        <button name="answer" value="no">
          I did not start this
        </button>
      </form>
    </>,
  )
}

/** Asks for the code that a device shows, and for the organisation of the person. */
export function devicePage({ userCode, action }: { userCode: string; action: string }): HttpAnswer {
  return pageAnswer(
    { status: 200, title },
    <form method="get" action={action}>
      <p>
        <label>
          The code that your device shows: <input name="user_code" value={userCode} required autocomplete="off" maxlength={32} />
        </label>
      </p>
      <p>
        <label>
          The name of your organisation, or the uid of its identity provider: <input name="idp_id" required maxlength={255} />
        </label>
      </p>
      <button>Continue</button>
    </form>,
  )
}

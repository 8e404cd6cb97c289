//! Steps that come to a function by themselves.

use crate::error::{ErrorFace, stead_error, stead_status};
use crate::guard::{call, look};
use crate::stream_reader::{self, stead_stream_reader};
use crate::stream_step::{self, stead_stream_step};
use crate::table::{self, Object};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use stead::stream::Subscription;
use stead::{Error, Result};

/// Called with each step of a subscription, in a thread of the library: `step` is the function's, to be freed with stead_stream_step_free. At
/// last it is called with NULL, and with NULL for `error` too if the stream has ended, else with the error that ends it, which it frees with
/// stead_error_free: that of stead_stream_reader_next, STEAD_TIMEOUT too.
pub type stead_stream_call_fn = Option<
    unsafe extern "C" fn(step: *mut stead_stream_step, error: *mut stead_error, user: *mut c_void),
>;

/// Calls a function with each step of a stream. Made by stead_stream_subscribe, freed with stead_stream_subscription_free.
pub struct stead_stream_subscription {
    _opaque: [u8; 0],
}

/// What the table has of a subscription.
struct SubscriptionFace(Mutex<Option<Subscription>>);

impl Object for SubscriptionFace {
    type Handle = stead_stream_subscription;
    const NAME: &'static str = "stream subscription";
}

/// What a program gives to be given back to its function.
struct User(*mut c_void);

// SAFETY: whoever subscribes says that the function may have it in a thread of the library.
unsafe impl Send for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Has a thread call a function with each step that comes, one after the other. Steps wait for it as for any reader. The reader is the
/// subscription's: the handle is none any more, also after an error, but for a `call` or a `subscription` that is NULL.
///
/// It ends with the stream, with an error of it, and when no step comes within the `timeout_ms` that the reader was opened with: the
/// function is told for whom it was waited.
///
/// Errors: STEAD_USAGE for what is no reader; those of the system if there is no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_subscribe(
    reader: *mut stead_stream_reader,
    call: stead_stream_call_fn,
    user: *mut c_void,
    subscription: *mut *mut stead_stream_subscription,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(subscription, "place for the subscription")?;
        let call = call.ok_or_else(|| Error::usage("the function is NULL"))?;
        let (reader, user) = (stream_reader::taken(reader)?, User(user));
        let subscription = Subscription::new(reader, move |step| {
            let (step, error) = match step {
                Ok(step) => (step.map_or(std::ptr::null_mut(), stream_step::give), None),
                Err(e) => (std::ptr::null_mut(), Some(e)),
            };
            let error = error.map_or(std::ptr::null_mut(), |e| table::insert(ErrorFace::new(e)));
            // SAFETY: whoever subscribes keeps what the header says of the function.
            unsafe { call(step, error, user.get()) }
        })?;
        out.put(table::insert(SubscriptionFace(Mutex::new(Some(subscription)))));
        Ok(())
    })
}

/// True once the function was called for the last time. True for what is no subscription.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_subscription_is_over(
    subscription: *const stead_stream_subscription,
) -> bool {
    look!(true, |_c| {
        let face = table::get::<SubscriptionFace>(subscription)?;
        let inner = face.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(inner.as_ref().is_none_or(Subscription::is_over))
    })
}

/// Waits until the function was called for the last time: the stream has ended or failed, or no step came in time. The handle is none any
/// more.
///
/// Errors: STEAD_USAGE for what is no subscription.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_subscription_join(
    subscription: *mut stead_stream_subscription,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        if let Some(subscription) = subscribed(subscription)? {
            subscription.join();
        }
        Ok(())
    })
}

/// Ends a subscription: the function is not called again, and a call that is under way is waited for, unless it is that which calls this.
/// NULL is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_subscription_free(
    subscription: *mut stead_stream_subscription,
) {
    look!((), |_c| subscribed(subscription).map(drop))
}

/// Takes a subscription from its handle, which is none any more.
fn subscribed(handle: *mut stead_stream_subscription) -> Result<Option<Subscription>> {
    if handle.is_null() {
        return Ok(None);
    }
    let face = table::get::<SubscriptionFace>(handle)?;
    table::remove::<SubscriptionFace>(handle)?;
    Ok(face.0.lock().unwrap_or_else(PoisonError::into_inner).take())
}

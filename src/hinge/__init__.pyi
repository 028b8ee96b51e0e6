"""The public interface: every name here is a name of `hinge`."""

from hinge.bins import QuantileBins as QuantileBins
from hinge.bins import UniformBins as UniformBins
from hinge.bins import restore_bins as restore_bins
from hinge.confidence import entropy as entropy
from hinge.confidence import fit_logistic as fit_logistic
from hinge.confidence import fit_temperature as fit_temperature
from hinge.confidence import logistic as logistic
from hinge.confidence import margin as margin
from hinge.confidence import max_softmax as max_softmax
from hinge.confidence import temperature as temperature
from hinge.costs import CostMatrix as CostMatrix
from hinge.costs import FixedCost as FixedCost
from hinge.costs import MeasuredCost as MeasuredCost
from hinge.costs import ZeroOneCost as ZeroOneCost
from hinge.errors import HingeError as HingeError
from hinge.errors import InvalidDecision as InvalidDecision
from hinge.errors import InvalidState as InvalidState
from hinge.errors import UnknownName as UnknownName
from hinge.policies import HILCB as HILCB
from hinge.policies import HILF as HILF
from hinge.policies import HILN as HILN
from hinge.policies import KL as KL
from hinge.policies import AdaHedgeG as AdaHedgeG
from hinge.policies import AlwaysLocal as AlwaysLocal
from hinge.policies import AlwaysRemote as AlwaysRemote
from hinge.policies import Decision as Decision
from hinge.policies import Decisions as Decisions
from hinge.policies import Explanation as Explanation
from hinge.policies import HedgeG as HedgeG
from hinge.policies import HedgeHI as HedgeHI
from hinge.policies import HedgeHIRestart as HedgeHIRestart
from hinge.policies import HILCBLite as HILCBLite
from hinge.policies import Logistic as Logistic
from hinge.policies import Need as Need
from hinge.policies import Offline as Offline
from hinge.policies import Oracle as Oracle
from hinge.policies import Policy as Policy
from hinge.policies import PooledKL as PooledKL
from hinge.policies import Static as Static
from hinge.policies import Thompson as Thompson
from hinge.policies import build as build
from hinge.policies import policy_class as policy_class
from hinge.policies import policy_names as policy_names
from hinge.policies import restore as restore

__version__: str
